// Work of a stream that is captured into a graph, and graphs.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "emulation.h"
#include "runtime.h"

using Nodes = std::vector<std::function<void()>>;

struct CUgraph_st {
  std::shared_ptr<const Nodes> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const Nodes> nodes;
};

namespace cuda_on_cpu {
namespace {

struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool failed = false;
  Nodes nodes;
};

std::map<cudaStream_t, Capture> captures;
uint64_t graph_launches = 0;
std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> executables;

cudaError_t no_graph() {
  return refuse(cudaErrorInvalidValue, "not a graph, or one that was destroyed");
}

template <class Handle>
cudaError_t destroy(std::set<Handle>& all, Handle handle) {
  return api_call([&] {
    if (all.erase(handle) == 0) return no_graph();
    delete handle;
    return cudaSuccess;
  });
}

}  // namespace

bool is_capturing(cudaStream_t stream) {
  return captures.contains(stream);
}

bool capture(cudaStream_t stream, const std::function<void()>& work) {
  const auto found = captures.find(stream);
  if (found == captures.end()) return false;
  found->second.nodes.push_back(work);
  return true;
}

cudaError_t check_enqueue(cudaStream_t stream) {
  if (const auto found = captures.find(stream); found != captures.end() && found->second.failed) {
    return refuse(cudaErrorStreamCaptureInvalidated, "the capture of the stream has failed before");
  }
  if (stream != nullptr) return cudaSuccess;
  for (auto& [captured, capture] : captures) {
    if (!is_blocking(captured)) continue;
    capture.failed = true;
    return refuse(cudaErrorStreamCaptureImplicit, "the default stream waits for a stream that is captured");
  }
  return cudaSuccess;
}

cudaError_t refuse_in_capture(cudaStream_t stream, const std::string& reason) {
  captures.at(stream).failed = true;
  return refuse(cudaErrorStreamCaptureUnsupported, reason);
}

cudaError_t check_no_capture(const char* function) {
  cudaError_t error = cudaSuccess;
  for (const auto& [stream, capture] : captures) {
    if (capture.mode == cudaStreamCaptureModeGlobal || capture.thread == std::this_thread::get_id()) {
      error = refuse_in_capture(stream, function);
    }
  }
  return error;
}

void forget_graphs() {
  captures.clear();
  for (cudaGraph_t graph : std::exchange(graphs, {})) delete graph;
  for (cudaGraphExec_t executable : std::exchange(executables, {})) delete executable;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

uint64_t cuda_on_cpu_graph_launches() {
  return graph_launches;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api_call([&] {
    if (!is_stream(stream)) return refuse(cudaErrorInvalidResourceHandle, "cudaStreamBeginCapture: not a stream");
    if (stream == nullptr) return refuse(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
    if (mode == cudaStreamCaptureModeRelaxed) return refuse(cudaErrorNotSupported, "no relaxed capture here");
    if (mode != cudaStreamCaptureModeGlobal && mode != cudaStreamCaptureModeThreadLocal) {
      return refuse(cudaErrorInvalidValue, "cudaStreamBeginCapture: mode");
    }
    if (is_capturing(stream)) return refuse(cudaErrorIllegalState, "the stream is captured already");
    captures[stream] = {.mode = mode, .thread = std::this_thread::get_id(), .nodes = {}};
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return api_call([&] {
    if (graph == nullptr) return refuse(cudaErrorInvalidValue, "cudaStreamEndCapture: null");
    *graph = nullptr;
    const auto found = captures.find(stream);
    if (found == captures.end()) return refuse(cudaErrorIllegalState, "the stream is not captured");
    if (found->second.thread != std::this_thread::get_id()) {
      found->second.failed = true;
      return refuse(cudaErrorStreamCaptureWrongThread, "a capture is ended by the thread that began it");
    }
    Capture capture = std::move(found->second);
    captures.erase(found);
    if (capture.failed) return refuse(cudaErrorStreamCaptureInvalidated, "the capture has failed before");
    *graph = new CUgraph_st{std::make_shared<const Nodes>(std::move(capture.nodes))};
    graphs.insert(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return api_call([&] {
    if (!is_stream(stream)) return refuse(cudaErrorInvalidResourceHandle, "cudaStreamIsCapturing: not a stream");
    if (status == nullptr) return refuse(cudaErrorInvalidValue, "cudaStreamIsCapturing: null");
    const auto found = captures.find(stream);
    *status = found == captures.end() ? cudaStreamCaptureStatusNone
              : found->second.failed  ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return api_call([&] {
    if (!graphs.contains(graph)) return no_graph();
    if (count == nullptr) return refuse(cudaErrorInvalidValue, "cudaGraphGetNodes: null");
    if (nodes != nullptr) return refuse(cudaErrorNotSupported, "the nodes of a graph are counted only");
    *count = graph->nodes->size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return api_call([&] {
    if (executable == nullptr) return refuse(cudaErrorInvalidValue, "cudaGraphInstantiate: null");
    if (!graphs.contains(graph)) return no_graph();
    if (flags != 0) return refuse(cudaErrorNotSupported, "cudaGraphInstantiate: flags");
    *executable = new CUgraphExec_st{graph->nodes};
    executables.insert(*executable);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return api_call([&] {
    if (!executables.contains(executable)) return no_graph();
    if (!is_stream(stream)) return refuse(cudaErrorInvalidResourceHandle, "cudaGraphLaunch: not a stream");
    if (is_capturing(stream)) return refuse(cudaErrorNotSupported, "no graph within a graph here");
    if (const cudaError_t error = check_enqueue(stream); error != cudaSuccess) return error;
    ++graph_launches;
    enqueue(stream, [nodes = executable->nodes] {
      for (const std::function<void()>& node : *nodes) {
        if (device_error() == cudaSuccess) node();
      }
    });
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return destroy(executables, executable);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return destroy(graphs, graph);
}
