// The staged path: slices of device memory go down to pinned host memory, through the host's
// collective, and up again. Three slices are under way:
//
//   slice 0   down  host  up
//   slice 1         down  host  up
//   slice 2               down  host  up
//
// A slice is the same range of every block, packed, so that it is a message of the same collective.
// In a vector collective the short blocks end first; the last slices hold only the longest blocks.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "coll/gpu/blocks.h"
#include "coll/gpu/hierarchical.h"
#include "coll/gpu/lane.h"

namespace weft {
namespace {

constexpr std::size_t kSlots = 3;

class Staging {
 public:
  Staging(DeviceLane& lane, const DeviceOperation& op, std::size_t longest)
      : lane_(lane),
        op_(op),
        n_(lane.group().ranks.size()),
        element_(size_of(op.call.type)),
        longest_(longest) {
    const Rank me = lane.group().me;
    in_ = device_blocks(op, me, n_, false);
    out_ = device_blocks(op, me, n_, true);
    // Slices must be the same on every rank: what a root has more of counts everywhere.
    const std::size_t widest = most_blocks(op, n_);
    // Of the larger buffer.
    slice_ = std::min(longest, std::max<std::size_t>(1, kStagedSlice / (widest * element_)));
    // Both buffers of a slot begin at cache lines.
    in_bytes_ = (packed(in_) + 63) / 64 * 64;
    slot_bytes_ = in_bytes_ + (packed(out_) + 63) / 64 * 64;
    memory_ = lane.staging(kSlots * slot_bytes_);
    gpu_ = std::max({op.mine.out.gpu, op.mine.in.gpu, 0});
  }

  Status run() {
    const std::size_t slices = (longest_ + slice_ - 1) / slice_;
    for (std::size_t k = 0; k < slices + 2; ++k) {
      if (k < slices) down(k);
      if (k >= 1 && k - 1 < slices) exchange(k - 1);
      if (k >= 2)
        if (Status s = up(k - 2); !s.ok()) return s;
    }
    for (std::size_t slot = 0; slot < std::min(kSlots, slices); ++slot)
      lane_.wait(lane_.event(gpu_, kUp + slot));
    return {};
  }

 private:
  // Events by slot: its last copy down, and up.
  static constexpr std::size_t kDown = 0, kUp = kSlots;

  std::size_t length(std::size_t k, std::size_t count) const {
    return count > k * slice_ ? std::min(slice_, count - k * slice_) : 0;
  }
  std::size_t packed(const std::vector<DeviceBlock>& blocks) const {
    std::size_t elements = 0;
    for (const DeviceBlock& b : blocks) elements += length(0, b.count);
    return elements * element_;
  }
  std::byte* in(std::size_t k) const { return memory_ + k % kSlots * slot_bytes_; }
  std::byte* out(std::size_t k) const { return in(k) + in_bytes_; }

  void down(std::size_t k) {
    const Device::Event ready = lane_.event(gpu_, kDown + k % kSlots);
    // The slot's last slice is up before its memory is written again.
    lane_.wait(lane_.event(gpu_, kUp + k % kSlots));
    const auto* from = static_cast<const std::byte*>(op_.call.in);
    std::byte* to = in(k);
    for (const DeviceBlock& b : in_) {
      const std::size_t bytes = length(k, b.count) * element_;
      if (bytes == 0) continue;
      lane_.device().copy(to, from + (b.at + k * slice_) * element_, bytes, gpu_,
                          lane_.stream(gpu_, 0));
      to += bytes;
    }
    lane_.device().record(ready, lane_.stream(gpu_, 0));
  }

  void exchange(std::size_t k) {
    lane_.wait(lane_.event(gpu_, kDown + k % kSlots));
    Call slice = op_.call;
    slice.in = in(k);
    slice.out = out(k);
    slice.count = length(k, op_.call.count);
    std::vector<std::size_t> sent, received;
    for (const std::size_t count : op_.call.counts) sent.push_back(length(k, count));
    for (const std::size_t count : op_.call.recv_counts) received.push_back(length(k, count));
    slice.counts = sent;
    slice.recv_counts = received;
    slice.offsets = slice.recv_offsets = {};  // one after the other
    handles_[k % kSlots] = lane_.start_on_host(op_.collective, std::move(slice), op_.root);
  }

  Status up(std::size_t k) {
    if (Status s = handles_[k % kSlots].wait(); !s.ok()) return s;
    auto* to = static_cast<std::byte*>(op_.call.out);
    const std::byte* from = out(k);
    for (const DeviceBlock& b : out_) {
      const std::size_t bytes = length(k, b.count) * element_;
      if (bytes == 0) continue;
      lane_.device().copy(to + (b.at + k * slice_) * element_, from, bytes, gpu_,
                          lane_.stream(gpu_, 1));
      from += bytes;
    }
    lane_.device().record(lane_.event(gpu_, kUp + k % kSlots), lane_.stream(gpu_, 1));
    return {};
  }

  DeviceLane& lane_;
  const DeviceOperation& op_;
  const std::size_t n_, element_, longest_;
  std::vector<DeviceBlock> in_, out_;
  std::size_t slice_, in_bytes_, slot_bytes_;
  std::byte* memory_;
  int gpu_;
  std::array<Request, kSlots> handles_;
};

}  // namespace

Status run_staged(DeviceLane& lane, const DeviceOperation& op, std::size_t longest) {
  if (op.collective == Collective::kBarrier) return lane.wire().barrier();
  if (longest == 0) return {};
  return Staging(lane, op, longest).run();
}

}  // namespace weft
