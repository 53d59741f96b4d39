// Streams that record what is queued on them, and the graphs that come of it.

#include "capture.hpp"

#include <algorithm>

#include "standin_faults.hpp"

namespace standin {
namespace {

void merge(Seen& into, const Seen& from) {
  for (const auto& [stream, items] : from) into[stream] = std::max(into[stream], items);
}

// True where all that was captured on other streams comes before the end of the first.
bool joined(Capture& capture) {
  const auto& last = capture.streams[capture.origin];
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const auto& each) {
    const auto& [stream, seen] = each;
    const auto own = seen.find(stream);
    const auto known = last.find(stream);
    return own == seen.end() || (known != last.end() && known->second == own->second);
  });
}

std::vector<std::uint64_t> uses_of(const std::vector<Item>& items) {
  std::set<std::uint64_t> uses;
  for (const auto& item : items) uses.insert(item.uses.begin(), item.uses.end());
  return {uses.begin(), uses.end()};
}

}  // namespace

cudaError_t Runtime::spoil(cudaStream_t stream, cudaError_t error) const {
  if (is_stream(stream) && stream->capture) stream->capture->valid = false;
  return error;
}

cudaError_t Runtime::forbid_while_capturing() const {
  cudaError_t error = cudaSuccess;
  for (const auto* stream : streams_) {
    auto* capture = stream->capture.get();
    if (capture == nullptr || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread != std::this_thread::get_id())
      continue;
    capture->valid = false;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

bool Runtime::is_queued(cudaGraphExec_t executable) const {
  if (failure_ != cudaSuccess) return false;  // nothing will run
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto* stream) {
    return std::any_of(stream->queue.begin(), stream->queue.end(),
                       [&](const Item& item) { return item.graph && item.graph->executable == executable; });
  });
}

cudaError_t wait_for_captured(cudaStream_t stream, const CUevent_st& event) {
  auto& capture = *event.capture;
  if (capture.ended) return cudaErrorCapturedEvent;
  if (stream->capture && stream->capture != event.capture) {
    stream->capture->valid = false;
    capture.valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
  stream->capture = event.capture;
  merge(capture.streams[stream], event.seen);
  return cudaSuccess;
}

cudaError_t forbid_wait(const CUevent_st& event) {
  if (!event.capture) return Runtime::get().forbid_while_capturing();
  if (!event.capture->ended) event.capture->valid = false;
  return cudaErrorCapturedEvent;
}

}  // namespace standin

using standin::begin_call;
using standin::end_call;
using standin::Runtime;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const auto fault = begin_call("cudaStreamBeginCapture"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (runtime.failure() != cudaSuccess) return end_call(runtime.failure());
  if (!runtime.is_stream(stream)) return end_call(cudaErrorInvalidResourceHandle);
  if (stream->capture) return end_call(runtime.spoil(stream, cudaErrorIllegalState));
  stream->capture = std::make_shared<standin::Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->streams[stream];
  return cudaSuccess;
}

// A fault is reported behind the end: the stream captures no more, and there is no graph.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto fault = begin_call("cudaStreamEndCapture");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (graph == nullptr) return end_call(cudaErrorInvalidValue);
  *graph = nullptr;
  if (!runtime.is_stream(stream)) return end_call(cudaErrorInvalidResourceHandle);
  if (!stream->capture) return end_call(cudaErrorIllegalState);
  const auto capture = stream->capture;
  if (capture->origin != stream) return end_call(runtime.spoil(stream, cudaErrorStreamCaptureUnmatched));
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return end_call(cudaErrorStreamCaptureWrongThread);
  for (const auto& [each, seen] : capture->streams) {
    if (runtime.is_stream(each) && each->capture == capture) each->capture.reset();
  }
  capture->ended = true;
  if (fault != cudaSuccess) return end_call(fault);
  if (runtime.failure() != cudaSuccess) return end_call(runtime.failure());
  if (!capture->valid) return end_call(cudaErrorStreamCaptureInvalidated);
  if (!standin::joined(*capture)) return end_call(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{stream->device, std::move(capture->items)};
  standin::register_object(*graph, "graph");
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (const auto fault = begin_call("cudaStreamIsCapturing"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!runtime.is_stream(stream) || status == nullptr) return end_call(cudaErrorInvalidValue);
  *status = !stream->capture         ? cudaStreamCaptureStatusNone
            : stream->capture->valid ? cudaStreamCaptureStatusActive
                                     : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (const auto fault = begin_call("cudaGraphInstantiate", cudaErrorMemoryAllocation); fault != cudaSuccess)
    return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (executable == nullptr || !standin::is_registered(graph, "graph"))
    return end_call(cudaErrorInvalidValue);
  if (flags != 0) return end_call(cudaErrorNotSupported);
  *executable = new CUgraphExec_st{graph->device,
                                   std::make_shared<const std::vector<standin::Item>>(graph->items),
                                   standin::uses_of(graph->items),
                                   {}};
  standin::register_object(*executable, "executable graph");
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const auto fault = begin_call("cudaGraphLaunch"); fault != cudaSuccess) return end_call(fault);
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  if (!standin::is_registered(executable, "executable graph")) return end_call(cudaErrorInvalidValue);
  if (!runtime.is_stream(stream) || stream->device != executable->device)
    return end_call(cudaErrorInvalidResourceHandle);
  // Graphs within graphs are not modelled.
  if (stream->capture) return end_call(runtime.spoil(stream, cudaErrorNotSupported));
  for (const auto serial : executable->uses) {
    if (!runtime.alive(serial)) standin::violation("cudaGraphLaunch: memory that the graph uses was freed");
  }
  // Launches of one graph come one after the other, on whatever streams.
  if (executable->last && !executable->last->done && executable->last->stream != stream) {
    standin::Item wait;
    wait.wait_for = executable->last;
    if (const auto error = runtime.queue(stream, std::move(wait)); error != cudaSuccess)
      return end_call(error);
  }
  executable->last = std::make_shared<standin::Record>();
  executable->last->stream = stream;
  standin::Item item;
  item.graph = std::make_shared<standin::GraphRun>(
      standin::GraphRun{executable, executable->items, 0, executable->last});
  item.uses = executable->uses;
  return end_call(runtime.queue(stream, std::move(item)));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const auto fault = begin_call("cudaGraphExecDestroy");
  auto& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  standin::forget_object(executable, "executable graph");
  if (runtime.is_queued(executable))
    standin::violation("cudaGraphExecDestroy: a launch of the graph is still queued");
  delete executable;
  return end_call(fault);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const auto fault = begin_call("cudaGraphDestroy");
  standin::forget_object(graph, "graph");
  delete graph;
  return end_call(fault);
}

}  // extern "C"
