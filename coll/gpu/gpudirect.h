// The paths between hosts on which GPUs read and write the message buffers: the ranks of a host
// divide the bytes between hosts among them, and the engine runs a plan among the ranks with the
// same place on their hosts (hierarchical.cc). One rank per host is the simplest case.
//
// NICs that reach GPUs (GPUDirect) send and receive device memory; otherwise messages are in pinned
// host memory. Both belong to the lane, which registers its memory once, whatever allocation the
// user passes. Work that reads what a NIC has written starts only after the host has seen the
// completion and has flushed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coll/gpu/lane.h"
#include "transport/gpu/pinned.h"

namespace weft {

// The names of the paths for last_algorithm(); they have no schedules.
extern const Algorithm kGpuDirectPath, kStagedHostsPath;

// Which ranks exchange: ranks of a host read and write each other's buffers, and ranks with the
// same place on their hosts send each other messages through NICs. Ranks of the group.
struct NicLayout {
  std::vector<std::vector<Rank>> hosts;  // all with the same number of ranks
  std::size_t host = 0, place = 0;       // this rank's
};

// The paths of one lane. Only the lane's thread uses them, except ways(), which calls use.
class GpuDirect {
 public:
  // How a rank exchanges data with other hosts, after its host has divided the bytes between hosts.
  enum Way : std::uint64_t {
    kNics = 1,    // through NICs that reach the GPUs
    kPinned = 2,  // through pinned host memory
  };

  explicit GpuDirect(DeviceLane& lane);
  ~GpuDirect();
  GpuDirect(const GpuDirect&) = delete;
  GpuDirect& operator=(const GpuDirect&) = delete;

  // Returns the ways open to this rank, as bits: none unless its buffers are device memory and the
  // message is long enough (WEFT_GPUDIRECT). kNics requires NICs that all reach this GPU, which the
  // first call finds out, before its stream waits. The lane takes the first way that is open to all
  // ranks.
  std::uint64_t ways(const DeviceOperation& op);
  // The ranks of the group whose buffers run() needs: those of this host, or this rank alone.
  const std::vector<Rank>& neighbours() const { return layout_.hosts[layout_.host]; }
  // Runs the task after the streams of all neighbors have arrived. Neighbors use each other's
  // buffers until all have returned. Throws Error if the device fails; the job has then failed.
  Status run(Way way, const DeviceOperation& op, std::span<const DeviceRecord> records,
             const MappedBuffers& buffers);

 private:
  struct OfGpu {
    bool looked = false;
    PooledMemory memory;  // none: NICs do not reach the GPU
  };
  void lay_out();
  std::string why_no_layout();
  void look(int gpu, OfGpu& of);
  std::string why_not(int gpu, const PooledMemory& memory);

  DeviceLane& lane_;
  std::vector<OfGpu> gpus_;
  std::optional<std::uint64_t> least_;  // fewest bytes of the larger buffer for NICs
  NicLayout layout_;  // no hosts: unknown before the first long call, or see no_layout_
  std::optional<std::string> no_layout_;
};

}  // namespace weft
