#include "keel/base/report.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "keel/base/atomic_file.h"
#include "keel/base/clock.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/log.h"
#include "keel/base/output.h"
#include "keel/base/process.h"
#include "keel/base/version.h"

namespace keel {

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

void Report::require_writable(const std::filesystem::path& path) {
  if (path == "-") return;
  std::error_code code;
  const std::filesystem::file_status status = std::filesystem::status(path, code);
  const bool is_special = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
                          !std::filesystem::is_directory(status);
  if (!is_special) {
    const AtomicFile probe(path);
  } else if (::access(path.c_str(), W_OK) != 0) {  // opening a pipe would wait for its reader
    throw system_error("cannot write", path, errno);
  }
}

}  // namespace keel
