#include "keel/base/tool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/mapped_file.h"
#include "keel/base/output.h"
#include "keel/base/signals.h"
#include "keel/base/version.h"
#include "support/child.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::ChildResult;
using testing::run_in_child;

Tool tool() {
  Tool tool{.name = "keel-test", .summary = "a test", .examples = {{"keel-test --out d"}}};
  tool.options = {{.name = "--out", .type = OptionType::directory, .required = true}, progress_option()};
  return tool;
}

int call(std::vector<std::string> arguments, const ToolBody& body) {
  arguments.insert(arguments.begin(), "bin/keel-test");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return run_tool(static_cast<int>(pointers.size()), pointers.data(), tool(), body);
}

ChildResult run(const std::vector<std::string>& arguments, const ToolBody& body) {
  return run_in_child([&] { return call(arguments, body); });
}

ChildResult run_body(const ToolBody& body) {
  return run({"--out", "d"}, body);
}

TEST(RunTool, AnswersWithoutRunning) {
  const ToolBody never = [](const Options&) -> int { throw std::runtime_error("ran"); };
  const ChildResult shown = run({"--version"}, never);
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.out, std::string("keel-test ") + version() + "\n");
  const ChildResult brief = run({"--nonsense", "-h"}, never);
  EXPECT_EQ(brief.code, 0);
  EXPECT_EQ(brief.out, brief_help(tool()));
  EXPECT_EQ(brief.err, "");
  EXPECT_EQ(run({"--help"}, never).out, full_help(tool()));
  EXPECT_EQ(run({"--completions", "fish"}, never).out, completion_script(tool(), "fish"));
  EXPECT_EQ(run({"--completions=bash"}, never).out, completion_script(tool(), "bash"));
  EXPECT_EQ(run({"--describe-options"}, never).code, 0);
  const ChildResult shell = run({"--completions", "tcsh"}, never);
  EXPECT_EQ(shell.code, 2);
  EXPECT_EQ(shell.err,
            "keel-test: error: no completions for the shell 'tcsh' (--completions): one of bash, zsh, fish\n");
}

TEST(RunTool, ResultsGoToStdoutAndTheCodeIsTheBodys) {
  const ChildResult result = run_body([](const Options& options) {
    write_stdout("result " + options.text("--out") + "\n");
    log::warn("look {}", 1);
    log::info("done");
    log::debug("not shown");
    return 7;
  });
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.out, "result d\n");
  EXPECT_EQ(result.err, "keel-test: warning: look 1\nkeel-test: done\n");
}

TEST(RunTool, QuietAndLogLevel) {
  const ToolBody body = [](const Options&) {
    log::debug("a");
    log::info("b");
    log::warn("c");
    log::error("d");
    return 0;
  };
  EXPECT_EQ(run({"--out", "d", "--quiet"}, body).err, "keel-test: error: d\n");
  EXPECT_EQ(run({"--out", "d", "--log-level", "warning"}, body).err, "keel-test: warning: c\nkeel-test: error: d\n");
  EXPECT_EQ(run({"--out", "d", "--log-level", "debug"}, body).err,
            "keel-test: debug: a\nkeel-test: b\nkeel-test: warning: c\nkeel-test: error: d\n");
}

TEST(RunTool, EveryExceptionIsOneLineAndACode) {
  const auto thrown = [](auto exception) { return run_body([exception](const Options&) -> int { throw exception; }); };
  const ChildResult error = thrown(Error(ErrorKind::format, "bad\nmagic\x1b[2J", "f.bin", "convert it"));
  EXPECT_EQ(error.code, 3);
  EXPECT_EQ(error.err, "keel-test: error: bad\\nmagic\\x1b[2J (f.bin): convert it\n");
  EXPECT_EQ(thrown(std::bad_alloc()).code, 6);
  EXPECT_EQ(thrown(std::bad_alloc()).err, "keel-test: error: out of memory\n");
  const auto code = std::make_error_code(std::errc::filename_too_long);
  EXPECT_EQ(thrown(std::filesystem::filesystem_error("status", "x", code)).code, 4);
  EXPECT_EQ(thrown(std::filesystem::filesystem_error("status", "x", code)).err,
            "keel-test: error: cannot access: File name too long (x)\n");
  EXPECT_EQ(thrown(std::runtime_error("odd")).code, 1);
  EXPECT_EQ(thrown(std::runtime_error("odd")).err, "keel-test: error: internal error: odd\n");
  EXPECT_EQ(thrown(Stopped{SIGTERM}).code, 143);
  EXPECT_EQ(thrown(Stopped{SIGTERM}).err, "keel-test: stopped by SIGTERM\n");
  EXPECT_EQ(thrown(ClosedPipe{}).code, 141);
  EXPECT_EQ(thrown(ClosedPipe{}).err, "");
}

TEST(RunTool, UsageErrors) {
  const ToolBody body = [](const Options&) { return 0; };
  const ChildResult unknown = run({"--out", "d", "--ouz"}, body);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err, "keel-test: error: unknown option '--ouz': did you mean '--out'?\n");
  EXPECT_EQ(unknown.out, "");
}

TEST(RunTool, AnExceptionInAThreadIsOneLineToo) {
  const ChildResult result = run_body([](const Options&) {
    std::thread([] { throw std::runtime_error("in a thread"); }).join();
    return 0;
  });
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "keel-test: error: internal error: uncaught exception: in a thread\n");
}

/// The tool with its stdout replaced by what `open_stdout` gives (-1: closed).
ChildResult run_with_stdout(const std::function<int()>& open_stdout, size_t bytes) {
  return run_in_child([&] {
    const int replacement = open_stdout();
    (void)::close(STDOUT_FILENO);
    if (replacement >= 0) (void)::dup2(replacement, STDOUT_FILENO);
    return call({"--out", "d"}, [&](const Options&) {
      write_stdout(std::string(bytes, 'x'));
      return 0;
    });
  });
}

TEST(RunTool, AFullStdoutIsAnIoError) {
  for (const size_t bytes : {size_t{1}, size_t{1'000'000}}) {
    const ChildResult result = run_with_stdout([] { return ::open("/dev/full", O_WRONLY); }, bytes);
    EXPECT_EQ(result.code, 4);
    EXPECT_EQ(result.err, "keel-test: error: cannot write: No space left on device (stdout)\n");
  }
}

TEST(RunTool, AClosedPipeEndsQuietly) {
  const auto broken_pipe = [] {
    int ends[2];
    if (::pipe(ends) != 0) return -1;
    (void)::close(ends[0]);
    return ends[1];
  };
  for (const size_t bytes : {size_t{1}, size_t{1'000'000}}) {
    const ChildResult result = run_with_stdout(broken_pipe, bytes);
    EXPECT_EQ(result.code, 141);
    EXPECT_EQ(result.err, "");
  }
}

TEST(RunTool, AMissingStdoutNeverLandsInAFile) {
  const ChildResult result = run_with_stdout([] { return -1; }, 10);
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.err, "keel-test: error: cannot write: Bad file descriptor (stdout)\n");
  EXPECT_EQ(run_with_stdout([] { return -1; }, 0).code, 0);
}

TEST(Signals, AHangupThatIsIgnoredStaysSo) {
  (void)::signal(SIGHUP, SIG_IGN);  // as nohup does
  const ChildResult result = run_body([](const Options&) {
    (void)::raise(SIGHUP);
    return stop_requested() ? 91 : 0;
  });
  (void)::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(result.code, 0);
}

TEST(Signals, AskToStop) {
  (void)::signal(SIGHUP, SIG_DFL);  // whatever started the tests
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
    const ChildResult result = run_body([&](const Options&) {
      if (stop_requested() || stop_signal() != 0) return 90;
      throw_if_stopped();
      (void)::raise(signal);
      if (!stop_requested() || stop_signal() != signal || stop_is_urgent()) return 91;
      throw_if_stopped();
      return 92;
    });
    EXPECT_EQ(result.code, exit_code_of_signal(signal));
    EXPECT_EQ(result.err, "keel-test: stopped by " + signal_name(signal) + "\n");
  }
  EXPECT_EQ(exit_code_of_signal(SIGINT), 130);
  EXPECT_EQ(exit_code_of_signal(SIGTERM), 143);
  EXPECT_EQ(exit_code_of_signal(SIGUSR1), 138);
  EXPECT_EQ(exit_code_of_signal(SIGHUP), 129);
  EXPECT_EQ(signal_name(SIGKILL), "signal 9");
}

TEST(Signals, TheSecondIsUrgentAndTheThirdEnds) {
  const ChildResult result = run_body([](const Options&) {
    const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(kSameRequestMs + 50)); };
    (void)::raise(SIGINT);
    for (int i = 0; i < 3; ++i) (void)::raise(SIGTERM);
    if (stop_is_urgent()) return 90;  // the same request, passed on by others too
    wait();
    (void)::raise(SIGTERM);
    if (stop_signal() != SIGINT || !stop_is_urgent()) return 91;
    wait();
    (void)::raise(SIGUSR1);
    return 92;
  });
  EXPECT_EQ(result.signal, SIGUSR1);
}

TEST(Signals, CanBeAskedForAndCleared) {
  EXPECT_FALSE(stop_requested());
  request_stop(SIGTERM);
  EXPECT_TRUE(stop_requested());
  EXPECT_EQ(stop_signal(), SIGTERM);
  clear_stop();
  EXPECT_FALSE(stop_requested());
  EXPECT_FALSE(stop_is_urgent());
}

TEST(RunTool, AMappedFileThatShrinksIsOneLine) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "left to the sanitizer";
#endif
  const testing::TempDir dir;
  testing::put_file(dir / "f", std::string(100'000, 'x'));
  const ChildResult result = run({"--out", "d"}, [&](const Options&) {
    const MappedFile file(dir / "f");
    std::filesystem::resize_file(dir / "f", 0);
    return static_cast<int>(*static_cast<const volatile std::byte*>(file.bytes().data() + 50'000));
  });
  EXPECT_EQ(result.code, kExitIo);
  EXPECT_EQ(result.err,
            "keel-test: error: a file in use became shorter or could not be read (SIGBUS): restore it and resume\n");
}

TEST(RunTool, AnotherSigbusStaysACrash) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "left to the sanitizer";
#endif
  const ChildResult result = run({"--out", "d"}, [](const Options&) {
    (void)::raise(SIGBUS);
    (void)::raise(SIGBUS);
    return 0;
  });
  EXPECT_EQ(result.signal, SIGBUS);
}

}  // namespace
}  // namespace keel
