// Buffers of ranks of this machine, as the GPU of this rank reaches them. Not installed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coll/gpu/lane.h"

namespace weft {

// Of one operation, for as long as it runs.
class MappedBuffers {
 public:
  // Of these ranks of the group. Never throws: what some buffer cannot be reached for is why_not().
  MappedBuffers(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
                std::vector<Rank> members);
  ~MappedBuffers();
  MappedBuffers(const MappedBuffers&) = delete;
  MappedBuffers& operator=(const MappedBuffers&) = delete;

  const std::string& why_not() const { return why_not_; }  // empty: all are reached
  const std::vector<Rank>& members() const { return members_; }
  // Of the i-th of them.
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
};

}  // namespace weft
