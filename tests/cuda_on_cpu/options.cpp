#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "block.h"
#include "emulation.h"

namespace cuda_on_cpu {
namespace {

[[noreturn]] void reject(const char* name, std::string_view value, const char* wanted) {
  std::fprintf(stderr, "CUDA on CPU: %s=%.*s: it is %s\n", name, static_cast<int>(value.size()), value.data(), wanted);
  std::exit(2);
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

void read_switch(const char* name, bool& is_on) {
  const std::string_view text = environment(name);
  if (text.empty()) return;
  if (text != "0" && text != "1") reject(name, text, "0 or 1");
  is_on = text == "1";
}

template <class Number>
void read_number(const char* name, Number least, Number& number) {
  const std::string_view text = environment(name);
  if (text.empty()) return;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least) reject(name, text, "a number");
}

Options from_environment() {
  Options options;
  if (const auto order = environment("KEEL_EMULATION_ORDER"); order == "reverse") {
    options.order = Order::reverse;
  } else if (order == "random") {
    options.order = Order::random;
  } else if (!order.empty() && order != "forward") {
    reject("KEEL_EMULATION_ORDER", order, "forward, reverse or random");
  }
  if (const auto streams = environment("KEEL_EMULATION_STREAMS"); streams == "lazy") {
    options.streams = Streams::lazy;
  } else if (!streams.empty() && streams != "eager") {
    reject("KEEL_EMULATION_STREAMS", streams, "eager or lazy");
  }
  read_switch("KEEL_EMULATION_GUARD", options.guard);
  read_switch("CUDA_LAUNCH_BLOCKING", options.launch_blocking);
  read_number<uint64_t>("KEEL_EMULATION_SEED", 0, options.seed);
  read_number("KEEL_EMULATION_WORKERS", 1, options.workers);
  read_number("KEEL_EMULATION_SHARED", kStaticShared, options.shared_bytes);
  if (options.shared_bytes > kMaxShared)
    reject("KEEL_EMULATION_SHARED", environment("KEEL_EMULATION_SHARED"), "at most 227 KiB");
  read_number<size_t>("KEEL_EMULATION_MEMORY", 1, options.memory_bytes);
  return options;
}

}  // namespace
}  // namespace cuda_on_cpu

cuda_on_cpu::Options* cuda_on_cpu_options() {
  static cuda_on_cpu::Options options = cuda_on_cpu::from_environment();
  return &options;
}
