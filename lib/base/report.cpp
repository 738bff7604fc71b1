#include "keel/base/report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "keel/base/atomic_file.h"
#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/base/process.h"
#include "keel/base/version.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

/// A path without links, dots and a slash at its end, of something that need not exist.
fs::path resolved(const fs::path& path) {
  std::error_code code;
  fs::path full = fs::weakly_canonical(fs::absolute(path, code), code);
  if (code) full = fs::absolute(path, code).lexically_normal();
  return full.has_filename() || !full.has_relative_path() ? full : full.parent_path();
}

/// Where a file lies: itself and all folders above it.
class Place {
 public:
  explicit Place(const fs::path& path) : path_(resolved(path)) {
    for (fs::path above = path_;; above = above.parent_path()) {
      if (const auto id = identity(above)) identities_.insert(*id);
      if (!above.has_relative_path()) break;
    }
  }

  /// True for this file, by whatever name, and for a folder above it.
  bool is_or_lies_in(const fs::path& other) const {
    if (const auto id = identity(other)) return identities_.contains(*id);
    const fs::path outer = resolved(other);
    return std::mismatch(outer.begin(), outer.end(), path_.begin(), path_.end()).first == outer.end();
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;
  static std::optional<Identity> identity(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return std::nullopt;
    return Identity(status.st_dev, status.st_ino);
  }

  fs::path path_;
  std::set<Identity> identities_;
};

/// A name of what the shell has opened for us, a file too.
bool names_descriptor(const std::string& path) {
  return path == "/dev/stdout" || path == "/dev/stderr" || path.starts_with("/dev/fd/") ||
         path.starts_with("/proc/self/fd/");
}

}  // namespace

struct Report::State {
  Json head;
  Json config = Json::object();
  Json inputs = Json::array();
  Json results = Json::object();
};

Report::Report(const std::string& schema, const std::string& tool, const std::vector<std::string>& command)
    : state_(std::make_unique<State>()) {
  state_->head = {
      {"schema", schema}, {"tool", tool}, {"version", version()}, {"command", command}, {"started", utc_time()}};
}

Report::Report(Report&&) noexcept = default;
Report& Report::operator=(Report&&) noexcept = default;
Report::~Report() = default;

Json& Report::config() noexcept {
  return state_->config;
}
Json& Report::results() noexcept {
  return state_->results;
}

void Report::add_input(const ReportInput& input) {
  Json entry = {{"path", input.path}, {"bytes", input.bytes}};
  if (!input.sha256.empty()) entry["sha256"] = input.sha256;
  if (!input.xxh3.empty()) entry["xxh3"] = input.xxh3;
  state_->inputs.push_back(std::move(entry));
}

void Report::add_input_file(const std::filesystem::path& path) {
  add_input({.path = path.string(), .bytes = size_of_file(path), .sha256 = sha256_of_file(path)});
}

Json Report::to_json() const {
  const HostInfo host = host_info();
  Json report = state_->head;
  report["finished"] = utc_time();
  report["host"] = {{"cpu", host.cpu}, {"cores", host.cores}, {"memory_bytes", host.memory_bytes}, {"gpus", host.gpus}};
  report["config"] = state_->config;
  report["inputs"] = state_->inputs;
  report["results"] = state_->results;
  report["warnings"] = log::warnings();
  return report;
}

void Report::write(const std::filesystem::path& path) const {
  const std::string text = json_text(to_json(), 2) + "\n";
  if (path == "-") {
    write_stdout(text);
    flush_stdout();
  } else {
    write_file_atomically(path, text);
  }
}

void Report::require_writable(const fs::path& path, bool force, const std::vector<fs::path>& kept) {
  if (path == "-") return;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    // Opening a pipe would wait for its reader.
    if (::access(path.c_str(), W_OK) != 0) throw system_error("cannot write", path, errno);
    return;
  }
  const Place place(path);
  for (const fs::path& own : kept) {
    if (!own.empty() && place.is_or_lies_in(own)) {
      throw Error(ErrorKind::usage, "a report can't go where this command reads or writes", path.string(),
                  "it would touch " + own.string() + "; give it a name elsewhere");
    }
  }
  if (fs::is_regular_file(status) && !names_descriptor(path.string())) require_absent(path, force);
  const AtomicFile probe(path);
}

}  // namespace keel
