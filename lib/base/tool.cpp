#include "keel/base/tool.h"

#include <fcntl.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/options_internal.h"
#include "keel/base/output.h"
#include "keel/base/signals.h"
#include "keel/base/terminal_internal.h"
#include "keel/base/utf8.h"
#include "keel/base/version.h"

namespace keel {
namespace {

/// A closed stdin, stdout or stderr would give its number to the next file that is opened.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) == -1) {
      (void)::open("/dev/null", descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR);
    }
  }
}

/// The last line of a tool that does not end well.
int end_with(int code, const std::string& line) {
  detail::draw_stderr_bar("");
  detail::write_stderr_line(one_line(line));
  return code;
}

int report_error(const std::string& tool, const std::string& message, int code) {
  return end_with(code, tool + ": error: " + message);
}

/// True if the arguments asked for something that needs no run.
bool answer_request(const Tool& tool, const std::vector<std::string>& arguments) {
  const detail::Request request = detail::find_request(tool, arguments);
  if (request.kind.empty()) return false;
  if (request.kind == "--version") {
    write_stdout(tool.name + " " + version() + "\n");
  } else if (request.kind == "-h") {
    write_stdout(brief_help(tool, request.command, detail::stdout_columns(kHelpColumns)));
  } else if (request.kind == "--help") {
    write_stdout(full_help(tool, request.command, detail::stdout_columns(kHelpColumns)));
  } else if (request.kind == "--describe-options") {
    write_stdout(json_text(describe_options(tool), 2) + "\n");
  } else {
    write_stdout(completion_script(tool, request.argument));
  }
  return true;
}

int run(const Tool& tool, const std::vector<std::string>& arguments, const ToolBody& body) {
  if (answer_request(tool, arguments)) return kExitOk;
  const Options options = parse_options(tool, arguments);
  const log::Level asked = log::parse_level(options.text("--log-level"));
  log::set_stderr_sink(tool.name, options.flag("--quiet") ? std::max(asked, log::Level::error) : asked);
  return body(options);
}

std::string tool_in_terminate;

/// An exception that nobody can catch (from a thread, a destructor): one line, no core dump of a user's terabyte.
[[noreturn]] void on_terminate() {
  std::string message = "internal error: uncaught exception";
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::exception& error) {
    message += std::string(": ") + error.what();
  } catch (...) {
  }
  ::_exit(report_error(tool_in_terminate, message, kExitInternal));
}

}  // namespace

int run_tool(int argc, char** argv, const Tool& tool, const ToolBody& body) {
  occupy_standard_descriptors();
  install_signal_handlers(tool.name);
  tool_in_terminate = tool.name;
  std::set_terminate(on_terminate);
  try {
    int code = run(tool, {argv, argv + argc}, body);
    flush_stdout();
    return code;
  } catch (const Error& error) {
    return report_error(tool.name, error.what(), exit_code(error.kind()));
  } catch (const ClosedPipe&) {
    detail::draw_stderr_bar("");
    return kExitClosedPipe;
  } catch (const Stopped& stopped) {
    return end_with(exit_code_of_signal(stopped.signal), tool.name + ": stopped by " + signal_name(stopped.signal));
  } catch (const std::bad_alloc&) {
    return report_error(tool.name, "out of memory", exit_code(ErrorKind::memory));
  } catch (const std::filesystem::filesystem_error& error) {
    const Error refused = system_error("cannot access", error.path1(), error.code().value());
    return report_error(tool.name, refused.what(), exit_code(refused.kind()));
  } catch (const std::exception& error) {
    return report_error(tool.name, std::string("internal error: ") + error.what(), kExitInternal);
  }
}

std::unique_ptr<Progress> make_progress(const Options& options) {
  const bool quiet = options.flag("--quiet");
  const std::string tool = options.arguments().empty() ? "" : options.arguments()[0];
  return make_progress(quiet ? ProgressMode::none : parse_progress_mode(options.text("--progress")),
                       tool.substr(tool.rfind('/') + 1));
}

}  // namespace keel
