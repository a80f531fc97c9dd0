// The streams of weft's copies and kernels: two for each GPU, shared by all communicators of the
// process. Work on these streams waits only for earlier work on the same stream, so it always ends.
// The streams are few because CUDA has 8 queues for all streams of a process
// (CUDA_DEVICE_MAX_CONNECTIONS): a stream in the same queue behind a stream that waits for it never
// moves. Thread-safe.
#pragma once

#include <cstddef>

#include "transport/gpu/device.h"

namespace weft {

inline constexpr int kOwnStreams = 2;
// Returns stream `which` (below kOwnStreams) of the GPU. Throws Error when the device refuses.
Device::Stream own_stream(Device& device, int gpu, int which);

// Copies bytes between any kinds of memory, one of them a GPU's. The call waits for the copy, some
// microseconds and the bytes' way. Throws Error.
void copy_now(void* to, const void* from, std::size_t bytes);

}  // namespace weft
