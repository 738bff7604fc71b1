#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

/// A file that went into a result. One of the hashes may be empty.
struct ReportInput {
  std::string path;
  int64_t bytes = 0;
  std::string sha256 = {};
  std::string xxh3 = {};
};

/// The report that every tool leaves:
///   {"schema":"keel.train/1","tool":..,"version":..,"command":[..],"started":"ISO 8601 UTC","finished":..,
///    "host":{"cpu","cores","memory_bytes","gpus"},"config":{..},"inputs":[{"path","bytes","sha256"|"xxh3"}],
///    "results":{..},"warnings":[..]}
/// Numbers are finite: put doubles in with set_number (json.h).
class KEEL_API Report {
 public:
  /// schema "keel.train/1", tool "keel-train", command = Options::arguments(). The clock starts here.
  Report(const std::string& schema, const std::string& tool, const std::vector<std::string>& command);
  Report(Report&&) noexcept;
  Report& operator=(Report&&) noexcept;
  ~Report();

  /// An object, {} at first.
  Json& config() noexcept;
  Json& results() noexcept;
  void add_input(const ReportInput& input);
  /// Size and SHA-256 taken from the file. Error(io).
  void add_input_file(const std::filesystem::path& path);

  /// The object as of now: "finished" is the current time, "warnings" those of log::warnings().
  Json to_json() const;
  /// to_json to a file, atomically, or to stdout for "-". Error(io).
  void write(const std::filesystem::path& path) const;

  /// Whether write(path) may and can be done, for long jobs to ask before they begin; leaves nothing behind. "-", pipes
  /// and devices always may be written. Error(usage)
  ///   if `path` is one of `kept`, or lies in one that is a folder or is to become one, by whatever name: what the
  ///   command itself reads or makes, which even `force` does not give up;
  ///   if a file is there and `force` is not set.
  /// Error(io) if the write would fail as things are: a missing or read-only folder, a folder's own name.
  static void require_writable(const std::filesystem::path& path, bool force,
                               const std::vector<std::filesystem::path>& kept);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace keel
