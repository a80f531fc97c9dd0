// Maps buffers of ranks of this machine, so that this rank's GPU can access them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coll/gpu/lane.h"

namespace weft {

// The mapped buffers of one task, for as long as the task runs.
class MappedBuffers {
 public:
  // Maps the buffers of `members`, ranks of the group; this rank's own need no mapping. Never
  // throws: why_not() says why the GPU cannot access a buffer. A buffer that is not mapped yet is
  // mapped once no stream waits, for later tasks (DevicePeers::acquire).
  MappedBuffers(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
                std::vector<Rank> members);
  ~MappedBuffers();
  MappedBuffers(const MappedBuffers&) = delete;
  MappedBuffers& operator=(const MappedBuffers&) = delete;

  const std::string& why_not() const { return why_not_; }  // empty: the GPU reaches all, or will
  bool reaches_all() const { return why_not_.empty() && !later_; }
  const std::vector<Rank>& members() const { return members_; }
  // The address of an element of the i-th member's `in`.
  std::byte* in(std::size_t i, std::size_t element) const {
    return static_cast<std::byte*>(ins_[i]) + element * element_;
  }
  std::byte* out(std::size_t i, std::size_t element) const {
    return static_cast<std::byte*>(outs_[i]) + element * element_;
  }

 private:
  std::vector<Rank> members_;
  std::size_t element_;
  std::vector<void*> ins_, outs_;
  std::vector<std::pair<const DeviceAddress*, int>> acquired_;
  std::string why_not_;
  bool later_ = false;
};

}  // namespace weft
