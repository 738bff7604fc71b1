// Streams, events, and the functions that streams call.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "emulation.h"
#include "memory.h"
#include "runtime.h"

struct CUstream_st {
  bool non_blocking = false;
  std::deque<std::function<void()>> work;
  uint64_t enqueued = 0, finished = 0;

  bool idle() const { return finished == enqueued; }
  void run_one();
  /// Runs what was enqueued first, up to this count. What runs may come back here for what is before it, never for more.
  void run_until(uint64_t count) {
    while (finished < count && !work.empty()) run_one();
  }
  void run_all() { run_until(enqueued); }
};

struct CUevent_st {
  using Clock = std::chrono::steady_clock;
  bool timing = true;
  std::shared_ptr<CUstream_st> stream;  ///< where it was recorded last; null: nowhere
  uint64_t position = 0;                ///< done when the stream has finished so many
  std::shared_ptr<Clock::time_point> time;

  bool pending() const { return stream != nullptr && stream->finished < position; }
};

namespace cuda_on_cpu {
namespace {

using Stream = std::shared_ptr<CUstream_st>;

struct Registry {
  Stream standard = std::make_shared<CUstream_st>();  ///< the default stream
  std::vector<Stream> made;
  std::vector<Stream> destroyed;  ///< with work that is still to run
};

Registry streams;
std::set<cudaEvent_t> events;

/// Null if it is no stream.
Stream find(cudaStream_t handle) {
  if (handle == nullptr) return streams.standard;
  for (const Stream& stream : streams.made) {
    if (stream.get() == handle) return stream;
  }
  return nullptr;
}

void wait_for(CUstream_st& stream, const Stream& other, uint64_t count) {
  if (other.get() == &stream || other->finished >= count) return;
  stream.work.emplace_back([other, count] { other->run_until(count); });
  ++stream.enqueued;
}

/// The default stream and those that are not "non-blocking" wait for each other.
void wait_for_others(CUstream_st& stream) {
  if (&stream == streams.standard.get()) {
    for (const auto* group : {&streams.made, &streams.destroyed}) {
      for (const Stream& other : *group) {
        if (!other->non_blocking) wait_for(stream, other, other->enqueued);
      }
    }
  } else if (!stream.non_blocking) {
    wait_for(stream, streams.standard, streams.standard->enqueued);
  }
}

cudaError_t no_stream() {
  return refuse(cudaErrorInvalidResourceHandle, "not a stream, or one that was destroyed");
}
cudaError_t no_event() {
  return refuse(cudaErrorInvalidResourceHandle, "not an event, or one that was destroyed");
}

template <class Function>
cudaError_t with_stream(cudaStream_t handle, Function function) {
  return api_call([&] {
    const Stream stream = find(handle);
    return stream == nullptr ? no_stream() : function(stream);
  });
}
template <class Function>
cudaError_t with_event(cudaEvent_t event, Function function) {
  return api_call([&] { return events.contains(event) ? function(*event) : no_event(); });
}

}  // namespace

bool is_stream(cudaStream_t stream) {
  return find(stream) != nullptr;
}

bool is_blocking(cudaStream_t stream) {
  const Stream found = find(stream);
  return found != nullptr && !found->non_blocking;
}

bool runs_at_once(cudaStream_t handle) {
  if (cuda_on_cpu_options()->streams == Streams::lazy || is_capturing(handle)) return false;
  const Stream stream = find(handle);
  wait_for_others(*stream);
  stream->run_all();
  return true;
}

void enqueue(cudaStream_t handle, std::function<void()> work) {
  if (capture(handle, work)) return;
  const Stream stream = find(handle);
  wait_for_others(*stream);
  stream->work.push_back(std::move(work));
  ++stream->enqueued;
  if (cuda_on_cpu_options()->streams == Streams::eager) stream->run_all();
}

void launched(cudaStream_t handle) {
  if (cuda_on_cpu_options()->launch_blocking && !is_capturing(handle)) find(handle)->run_all();
}

void synchronize_device() {
  streams.standard->run_all();
  for (const Stream& stream : std::exchange(streams.destroyed, {})) stream->run_all();
  for (const Stream& stream : streams.made) stream->run_all();
}

void forget_streams() {
  streams = {};
  for (cudaEvent_t event : events) delete event;
  events.clear();
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

void CUstream_st::run_one() {
  const std::function<void()> first = std::move(work.front());
  work.pop_front();
  if (device_error() == cudaSuccess) first();  // a broken device does no more
  ++finished;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api_call([&] {
    if (stream == nullptr || flags > cudaStreamNonBlocking) return refuse(cudaErrorInvalidValue, "cudaStreamCreate");
    streams.made.push_back(std::make_shared<CUstream_st>());
    streams.made.back()->non_blocking = flags == cudaStreamNonBlocking;
    *stream = streams.made.back().get();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return with_stream(handle, [&](const Stream& stream) {
    if (handle == nullptr) return no_stream();
    if (is_capturing(handle)) return refuse_in_capture(handle, "cudaStreamDestroy");
    if (!stream->idle()) streams.destroyed.push_back(stream);
    std::erase(streams.made, stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return with_stream(handle, [](const Stream& stream) {
    if (const cudaError_t error = check_no_capture("cudaStreamSynchronize"); error != cudaSuccess) return error;
    stream->run_all();
    return device_error();
  });
}

// Asked again and again it must come to an end: each question lets some work be done.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_stream(handle, [](const Stream& stream) {
    if (const cudaError_t error = check_no_capture("cudaStreamQuery"); error != cudaSuccess) return error;
    if (stream->idle()) return device_error();
    stream->run_one();
    return cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return with_stream(handle, [&](const Stream& stream) {
    if (!events.contains(event)) return no_event();
    if (flags != 0) return refuse(cudaErrorInvalidValue, "cudaStreamWaitEvent: flags");
    if (is_capturing(handle)) return refuse(cudaErrorNotSupported, "no events in a capture of the emulation");
    if (event->pending()) wait_for(*stream, event->stream, event->position);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return with_stream(handle, [&](const Stream&) {
    if (function == nullptr) return refuse(cudaErrorInvalidValue, "cudaLaunchHostFunc: null");
    if (const cudaError_t error = check_enqueue(handle); error != cudaSuccess) return error;
    enqueue(handle, [function, argument] {
      in_host_function = true;
      function(argument);
      in_host_function = false;
    });
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api_call([&] {
    if (event == nullptr || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
      return refuse(cudaErrorInvalidValue, "cudaEventCreate");
    }
    *event = new CUevent_st;
    (*event)->timing = (flags & cudaEventDisableTiming) == 0;
    events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return with_event(event, [&](CUevent_st&) {
    events.erase(event);
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return with_event(event, [&](CUevent_st& e) {
    const Stream stream = find(handle);
    if (stream == nullptr) return no_stream();
    if (is_capturing(handle)) return refuse(cudaErrorNotSupported, "no events in a capture of the emulation");
    if (const cudaError_t error = check_enqueue(handle); error != cudaSuccess) return error;
    e.time = std::make_shared<CUevent_st::Clock::time_point>();
    enqueue(handle, [time = e.time] { *time = CUevent_st::Clock::now(); });
    e.stream = stream;
    e.position = stream->enqueued;
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return with_event(event, [](CUevent_st& e) {
    if (const cudaError_t error = check_no_capture("cudaEventSynchronize"); error != cudaSuccess) return error;
    if (e.pending()) e.stream->run_until(e.position);
    return device_error();
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return with_event(event, [](CUevent_st& e) {
    if (const cudaError_t error = check_no_capture("cudaEventQuery"); error != cudaSuccess) return error;
    if (!e.pending()) return device_error();
    e.stream->run_one();
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return with_event(start, [&](CUevent_st& first) {
    if (!events.contains(end)) return no_event();
    if (milliseconds == nullptr) return refuse(cudaErrorInvalidValue, "cudaEventElapsedTime: null");
    for (const CUevent_st* event : {&first, end}) {
      if (!event->timing || event->stream == nullptr) {
        return refuse(cudaErrorInvalidResourceHandle, "an event that takes no time, or was not recorded");
      }
    }
    if (first.pending() || end->pending()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *first.time).count();
    return cudaSuccess;
  });
}
