// GPU buffers with mirrors on the host, which make and compare payloads; and the rate of the GPU's
// own copies, which bounds every collective on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "coll/api/communicator.h"
#include "coll/types.h"
#include "transport/gpu/device.h"

namespace weft {

// Returns the GPU of this rank; the ranks of a host share its GPUs. Throws Error naming the missing
// capability.
int gpu_of_rank(const World& world);

// GPU memory that mirrors `bytes` of host memory.
class DeviceMirror {
 public:
  DeviceMirror(int gpu, unsigned char* host, std::size_t bytes);
  ~DeviceMirror();
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;
  // Returns the GPU address that mirrors host address `p`, or nullptr if `p` is not mirrored.
  unsigned char* at(const unsigned char* p) const;
  void upload();    // copies all bytes to the GPU; blocking
  void download();  // copies all bytes to the host; blocking
  // Returns the seconds of a copy of `bytes` within the GPU, the best of several.
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

// Returns the minimum microseconds of a collective if `ranks` of n ranks share a GPU that copies
// the whole buffer in `copy_us`: the GPU must read every input byte and write every result byte of
// every rank once.
double device_bound_us(Collective c, int ranks, int n, double copy_us);

// Returns the microseconds of a copy of `bytes` on an idle GPU, for the slowest GPU of the job.
// Collective over the job.
double measure_device_copy_us(World& world, std::uint64_t bytes);

// Returns the largest number of ranks on one GPU. Collective over the job.
int ranks_per_gpu(World& world);

}  // namespace weft
