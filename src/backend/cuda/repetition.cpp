#include "backend/cuda/repetition.hpp"

#include "backend/cuda/cuda_backend.hpp"

namespace diffuse::cuda {

Capture::Capture(Device& device) : device_(device) {
  constexpr auto* kDoing = "beginning to record a step";
  cudaStream_t stream = nullptr;
  device_.check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
                kDoing);
  stream_ = Stream(stream, device_.releases());
  // What other threads do with the card meanwhile is none of the recording's business.
  device_.check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
                kDoing);
  device_.record_on(stream);
}

cudaError_t Capture::end(cudaGraph_t& graph) {
  device_.record_on(nullptr);
  return cudaStreamEndCapture(std::exchange(stream_, {}).get(), &graph);
}

Capture::~Capture() {
  if (stream_.get() == nullptr) return;
  cudaGraph_t graph = nullptr;
  // Its error is that of a capture which somebody gave up already, and told why.
  static_cast<void>(end(graph));
  if (graph != nullptr) device_.releases()->note(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

GraphExec Capture::finish() {
  constexpr auto* kDoing = "recording a step";
  cudaGraph_t made = nullptr;
  device_.check(end(made), "cudaStreamEndCapture", kDoing);
  const Graph graph(made, device_.releases());
  cudaGraphExec_t executable = nullptr;
  device_.check(cudaGraphInstantiate(&executable, made, 0), "cudaGraphInstantiate", kDoing);
  return {executable, device_.releases()};
}

CudaRepetition::CudaRepetition(CudaBackend& backend, std::shared_ptr<Device> device,
                               std::span<const AttentionArgs> attentions)
    : backend_(backend),
      device_(std::move(device)),
      attentions_(attentions.begin(), attentions.end()),
      moves_(device_->moves()) {}

CudaRepetition::~CudaRepetition() {
  device_->releases()->note(cudaStreamSynchronize(device_->stream()), "cudaStreamSynchronize");
}

bool CudaRepetition::record(const StepShape& shape, const std::function<void()>& work) {
  std::optional<GraphExec> old;
  try {
    Capture capture(*device_);
    work();
    old = shapes_.keep(shape, capture.finish());
  } catch (const Error& problem) {
    // The runtime keeps it, and would tell it again at the next launch.
    static_cast<void>(cudaGetLastError());
    shapes_.give_up(shape);
    backend_.warn_once(std::string("a repeated step runs launch by launch, for it could not be recorded: ") +
                       problem.what());
    return false;
  }
  if (old) device_->wait("running a recorded step for the last time");
  return true;
}

void CudaRepetition::run(const RepeatedStep& step, const std::function<void()>& work) {
  const auto shape = backend_.prepare(step, attentions_);
  if (moves_ != device_->moves()) {
    device_->wait("running recorded steps for the last time");
    shapes_.clear();
    moves_ = device_->moves();
  }
  const auto advice = shapes_.see(shape);
  if (advice == Advice::run || (advice == Advice::record && !record(shape, work))) {
    work();
    return;
  }
  device_->check(cudaGraphLaunch(shapes_.at(shape).get(), device_->stream()), "cudaGraphLaunch",
                 "running a recorded step");
}

}  // namespace diffuse::cuda
