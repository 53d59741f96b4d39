#pragma once
// Captures as streams and events see them.

#include "state.hpp"

namespace standin {

// cudaStreamWaitEvent for an event whose last record was captured: the stream becomes part of that capture,
// or goes on behind more of it.
cudaError_t wait_for_captured(cudaStream_t stream, const CUevent_st& event);
// The host may not wait for an event of a capture, nor for any other beside a capture of this thread.
cudaError_t forbid_wait(const CUevent_st& event);

}  // namespace standin
