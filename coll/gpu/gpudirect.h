// The paths between hosts on which what is sent is device memory's business to the end. RDMA cards
// that reach GPUs (GPUDirect) send and receive device memory; where they do not, the ranks of a
// host share out what crosses, and their kernels read and write pinned host memory that is sent.
// Either way it is reduced by the kernel of the direct path.
//
// Messages are sent from, and received into, memory of the lane's own on the GPU: that is
// registered once; any allocation of the user's will do; and what a card has written is read only
// by work that starts after the host has seen it complete and has flushed. Not installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coll/gpu/hierarchical.h"
#include "coll/gpu/lane.h"
#include "transport/gpu/pinned.h"

namespace weft {

// What last_algorithm() calls them; no schedules.
extern const Algorithm kGpuDirectPath, kStagedHostsPath;

// Of a lane; used by its thread only.
class GpuDirect {
 public:
  // How ranks exchange with other hosts.
  enum Way : std::uint64_t {
    kAlone = 1,  // by the cards, every rank what is its own
    // By the cards; ranks of a host use each other's buffers and share out what crosses.
    kWithHost = 2,
    kWithHostStaged = 4,  // the same through pinned host memory
  };

  explicit GpuDirect(DeviceLane& lane);
  ~GpuDirect();
  GpuDirect(const GpuDirect&) = delete;
  GpuDirect& operator=(const GpuDirect&) = delete;

  // The ways open to this rank, as bits: none unless its buffers are device memory and it is long
  // enough (WEFT_GPUDIRECT); the cards' where all that it needs reach this GPU, which is found out
  // the first time. A way is taken when it is open to all ranks, the first one of several.
  std::uint64_t ways(const DeviceOperation& op);
  // The ranks of the group whose buffers run() needs: of this host, or this one alone.
  const std::vector<Rank>& neighbours() const { return layout_.hosts[layout_.host]; }
  // Runs it; the streams of those ranks have come. They are at each other's buffers until all of
  // them have returned. Throws Error when the device fails, and then the job has.
  Status run(Way way, const DeviceOperation& op, std::span<const DeviceRecord> records,
             const MappedBuffers& buffers);

 private:
  struct OfGpu {
    bool looked = false;
    PooledMemory memory;  // none: not reached
  };
  void lay_out();
  std::string why_no_layout();
  void look(int gpu, OfGpu& of);
  std::string why_not(int gpu, const PooledMemory& memory);

  DeviceLane& lane_;
  std::vector<OfGpu> gpus_;
  std::optional<std::uint64_t> least_;  // bytes of the larger buffer
  CardLayout layout_;  // no hosts: there is none, see below; not known before the first long call
  std::optional<std::string> no_layout_;
};

}  // namespace weft
