// Streams that weft's copies and kernels run on: two of each GPU, for all communicators of the
// process. Nothing on them waits for anything but what is before it, so they are always passed.
// They are few on purpose: CUDA has 8 queues for all streams of a process
// (CUDA_DEVICE_MAX_CONNECTIONS), and one that shares a queue with a stream that waits for it never
// moves. Not installed. Thread-safe.
#pragma once

#include "transport/gpu/device.h"

namespace weft {

inline constexpr int kOwnStreams = 2;
// which: below kOwnStreams. Throws Error when the device refuses.
Device::Stream own_stream(Device& device, int gpu, int which);

}  // namespace weft
