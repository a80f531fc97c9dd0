// The streams of weft's copies and kernels: two per GPU, shared by all communicators of the
// process. Their work waits only for earlier work on the same stream, so it always completes. There
// are only two because CUDA has 8 queues for all streams of a process
// (CUDA_DEVICE_MAX_CONNECTIONS): a stream that is queued behind a stream that waits for it never
// runs. Thread-safe.
#pragma once

#include <cstddef>

#include "transport/gpu/device.h"

namespace weft {

inline constexpr int kOwnStreams = 2;
// Returns stream `which` (below kOwnStreams) of the GPU. Throws Error if it cannot be created.
Device::Stream own_stream(Device& device, int gpu, int which);

// Copies bytes between GPU memory and memory of any kind. Blocks until the copy is complete. Throws
// Error.
void copy_now(void* to, const void* from, std::size_t bytes);

}  // namespace weft
