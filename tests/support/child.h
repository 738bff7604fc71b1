#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace keel::testing {

/// How a child process ended: exit code, or signal (code -1); what it wrote.
struct ChildResult {
  int code = -1;
  int signal = 0;
  std::string out = {};
  std::string err = {};
};

inline ChildResult wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  if (WIFEXITED(status)) return {.code = WEXITSTATUS(status)};
  return {.signal = WTERMSIG(status)};
}

/// Runs `body` in a forked process with stdout and stderr caught; its result is the exit code. An escaped exception is
/// code 99, since a child must never return into the test runner.
inline ChildResult run_in_child(const std::function<int()>& body) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe(out.data()) != 0 || ::pipe(err.data()) != 0) throw std::runtime_error("no pipe");
  (void)std::fflush(nullptr);  // or the child would write again what waits in buffers
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no child process");
  if (child == 0) {
    (void)::dup2(out[1], STDOUT_FILENO);
    (void)::dup2(err[1], STDERR_FILENO);
    for (const int end : {out[0], out[1], err[0], err[1]}) (void)::close(end);
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  (void)::close(out[1]);
  (void)::close(err[1]);
  std::string texts[2];
  std::array<pollfd, 2> ends = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  for (int open = 2; open > 0;) {
    (void)::poll(ends.data(), 2, -1);
    for (size_t i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      char block[4096];
      const ssize_t got = ::read(ends[i].fd, block, sizeof block);
      if (got > 0) {
        texts[i].append(block, static_cast<size_t>(got));
      } else {
        (void)::close(ends[i].fd);
        ends[i].fd = -1;
        --open;
      }
    }
  }
  ChildResult result = wait_for(child);
  result.out = texts[0];
  result.err = texts[1];
  return result;
}

}  // namespace keel::testing
