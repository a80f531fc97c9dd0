// The path between hosts whose RDMA cards reach GPUs (GPUDirect): device memory is sent and received
// by the cards, and reduced by the kernel of the direct path.
//
// Messages are sent from, and received into, memory of the lane's own on the GPU: that is registered
// once; any allocation of the user's will do; and what a card has written is read only by work that
// starts after the host has seen it complete and has flushed. Not installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coll/device_lane.h"
#include "transport/device_region.h"

namespace weft {

extern const Algorithm kGpuDirectPath;  // what last_algorithm() calls it; no schedule

// Of a lane; used by its thread only.
class GpuDirect {
 public:
  explicit GpuDirect(DeviceLane& lane);
  ~GpuDirect();
  GpuDirect(const GpuDirect&) = delete;
  GpuDirect& operator=(const GpuDirect&) = delete;

  // Whether this rank would run the operation so: its buffers are device memory, it is long enough
  // (WEFT_GPUDIRECT), and all cards that it needs reach this GPU, which is found out the first time.
  // It is run so when all ranks want it.
  bool wants(const DeviceOperation& op);
  // Runs it; the stream has come. Throws Error when the device fails, and then the job has.
  Status run(const DeviceOperation& op, std::span<const DeviceRecord> records);

 private:
  struct OfGpu {
    bool looked = false;
    std::unique_ptr<DeviceRegion> memory;  // null: not reached
  };
  void look(int gpu, OfGpu& of);
  std::string why_not(int gpu, const DeviceRegion* memory);

  DeviceLane& lane_;
  std::vector<OfGpu> gpus_;
  std::optional<std::uint64_t> least_;  // bytes of the larger buffer
};

}  // namespace weft
