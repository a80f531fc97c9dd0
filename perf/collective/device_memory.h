// Buffers on a GPU, with a mirror on the host where payloads are made and compared; and what the
// GPU's own copies reach, the bound of every collective on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "coll/api/communicator.h"
#include "coll/types.h"
#include "transport/gpu/device.h"

namespace weft {

// The GPU of a rank: the ranks of a host share out its GPUs. Throws Error naming what is missing.
int gpu_of_rank(const World& world);

// Memory of one GPU, beside `bytes` of host memory.
class DeviceMirror {
 public:
  DeviceMirror(int gpu, unsigned char* host, std::size_t bytes);
  ~DeviceMirror();
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;
  // Where the GPU has what the host has at `p`; nullptr when that is not in this mirror.
  unsigned char* at(const unsigned char* p) const;
  void upload();  // return when the bytes are there
  void download();
  // Seconds of one copy of `bytes` within the GPU: the best of several.
  double time_copy(std::size_t bytes);

 private:
  void copy(void* to, const void* from, std::size_t bytes);
  Device& device_;
  int gpu_;
  unsigned char *host_, *memory_ = nullptr;
  std::size_t bytes_;
  Device::Stream stream_;
  Device::Event event_;
};

// Microseconds that a collective over `bytes` takes at least where `ranks` of n ranks share a GPU
// whose own copy of `bytes` takes `copy_us`: every byte of every rank's input is read once, every
// byte of its result written once.
double device_bound_us(Collective c, int ranks, int n, double copy_us);

// What one copy of `bytes` takes on this rank's GPU while nobody else uses it; the slowest GPU of
// the job. Collective over the job.
double measure_device_copy_us(World& world, std::uint64_t bytes);

// How many ranks share the fullest GPU. Collective over the job.
int ranks_per_gpu(World& world);

}  // namespace weft
