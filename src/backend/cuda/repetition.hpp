#pragma once
// Repeated work as CUDA graphs: what it queues is recorded once for each shape, and from then on launched
// with one call.
//
// What a launch is given are addresses and numbers, and a recording holds them as they were. So everything
// that changes from step to step (slots of keys and values, spans and pages of attention) lies in tables at
// fixed places, which are filled before the launch and outside of it; and everything else is the shape: the
// rows' place and number, and how attention is cut into blocks. Where memory of the backend's own moved
// since, all recordings are dropped.

#include <compare>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cuda/device.hpp"
#include "backend/cuda/shape_cache.hpp"
#include "kernels/cuda/attention_plan.hpp"

namespace diffuse::cuda {

class CudaBackend;

// What the launches of repeated work depend on, beside what stays the same as long as its Repetition lives.
struct StepShape {
  const float* data = nullptr;  // of the rows
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
  std::vector<kernels::cuda::AttentionCounts> attentions;

  auto operator<=>(const StepShape&) const = default;
};

// While it lives, what is queued on the device is recorded and does not run.
class Capture {
 public:
  // Throws where it cannot begin.
  explicit Capture(Device& device);
  ~Capture();  // what was not finished is dropped
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Ends it. Throws what spoiled it.
  GraphExec finish();

 private:
  cudaError_t end(cudaGraph_t& graph);

  Device& device_;
  // Its own: other threads order rows on their way behind the device's stream, and are no part of the graph.
  Stream stream_;
};

class CudaRepetition : public Repetition {
 public:
  CudaRepetition(CudaBackend& backend, std::shared_ptr<Device> device,
                 std::span<const AttentionArgs> attentions);
  ~CudaRepetition() override;  // waits for graphs that still run
  CudaRepetition(const CudaRepetition&) = delete;
  CudaRepetition& operator=(const CudaRepetition&) = delete;

  void run(const RepeatedStep& step, const std::function<void()>& work) override;

 private:
  // False where it could not be recorded: nothing was queued then.
  bool record(const StepShape& shape, const std::function<void()>& work);

  CudaBackend& backend_;
  std::shared_ptr<Device> device_;
  std::vector<AttentionArgs> attentions_;
  std::uint64_t moves_ = 0;  // of the device, when the recordings were made
  ShapeCache<StepShape, GraphExec> shapes_;
};

}  // namespace diffuse::cuda
