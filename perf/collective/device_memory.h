// Buffers on a GPU with a mirror on the host, where payloads are made and compared; and the speed
// of the GPU's own copies, which bounds every collective on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "coll/api/communicator.h"
#include "coll/types.h"
#include "transport/gpu/device.h"

namespace weft {

// Returns the GPU of this rank; the ranks of a host share its GPUs. Throws Error naming what is
// missing.
int gpu_of_rank(const World& world);

// Memory of one GPU that mirrors `bytes` of host memory.
class DeviceMirror {
 public:
  DeviceMirror(int gpu, unsigned char* host, std::size_t bytes);
  ~DeviceMirror();
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;
  // Returns the GPU address that mirrors host address `p`, or nullptr when `p` is not mirrored.
  unsigned char* at(const unsigned char* p) const;
  void upload();    // copies all bytes to the GPU, and waits
  void download();  // copies all bytes to the host, and waits
  // Returns the seconds of one copy of `bytes` within the GPU, the best of several copies.
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

// Returns the least microseconds of a collective where `ranks` of n ranks share a GPU whose own
// copy of the whole buffer takes `copy_us`: the GPU must read every input byte of every rank once
// and write every result byte once.
double device_bound_us(Collective c, int ranks, int n, double copy_us);

// Returns the microseconds of one copy of `bytes` on an idle GPU, for the slowest GPU of the job.
// Collective over the job.
double measure_device_copy_us(World& world, std::uint64_t bytes);

// Returns how many ranks share the fullest GPU. Collective over the job.
int ranks_per_gpu(World& world);

}  // namespace weft
