#include <charconv>
#include <limits>
#include <string_view>

#include "block.h"
#include "emulation.h"
#include "keel/kernels/common/environment.h"

namespace cuda_on_cpu {
namespace {

using keel::environment_switch;
using keel::environment_variable;
using keel::refuse_variable;

constexpr uint64_t kMaxSeed = std::numeric_limits<uint64_t>::max();
constexpr int kMaxWorkers = 1024;
constexpr size_t kMaxMemory = size_t{1} << 46;

template <class Number>
void read_number(const char* name, Number least, Number most, const char* allowed, Number& number) {
  const std::string_view text = environment_variable(name);
  if (text.empty()) return;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    refuse_variable(name, text, allowed);
  }
}

Options from_environment() {
  Options options;
  if (const auto order = environment_variable("KEEL_EMULATION_ORDER"); order == "reverse") {
    options.order = Order::reverse;
  } else if (order == "random") {
    options.order = Order::random;
  } else if (!order.empty() && order != "forward") {
    refuse_variable("KEEL_EMULATION_ORDER", order, "forward, reverse or random");
  }
  if (const auto streams = environment_variable("KEEL_EMULATION_STREAMS"); streams == "lazy") {
    options.streams = Streams::lazy;
  } else if (!streams.empty() && streams != "eager") {
    refuse_variable("KEEL_EMULATION_STREAMS", streams, "eager or lazy");
  }
  options.guard = environment_switch("KEEL_EMULATION_GUARD", false);
  options.launch_blocking = environment_switch("CUDA_LAUNCH_BLOCKING", false);
  read_number("KEEL_EMULATION_SEED", uint64_t{0}, kMaxSeed, "a whole number", options.seed);
  read_number("KEEL_EMULATION_WORKERS", 1, kMaxWorkers, "1 to 1024", options.workers);
  read_number("KEEL_EMULATION_SHARED", kStaticShared, kMaxShared, "49152 to 232448 (bytes)", options.shared_bytes);
  read_number("KEEL_EMULATION_MEMORY", size_t{1}, kMaxMemory, "1 to 2^46 (bytes)", options.memory_bytes);
  return options;
}

}  // namespace
}  // namespace cuda_on_cpu

cuda_on_cpu::Options* cuda_on_cpu_options() {
  static cuda_on_cpu::Options options = cuda_on_cpu::from_environment();
  return &options;
}
