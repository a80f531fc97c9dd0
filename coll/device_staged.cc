// The staged path: slices of device memory travel down to pinned host memory, through the host's
// collective, and up again. Three slices are under way:
//
//   slice 0   down  host  up
//   slice 1         down  host  up
//   slice 2               down  host  up
//
// A slice is the same range of every block, packed, so that it is a message of the same collective.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coll/device_lane.h"
#include "coll/device_shape.h"

namespace weft {
namespace {

constexpr std::size_t kSlots = 3;
// Of the larger buffer of a slice: long enough for the bus, short enough to overlap.
constexpr std::size_t kSliceBytes = std::size_t{2} << 20;

class Staging {
 public:
  Staging(DeviceLane& lane, const DeviceOperation& op)
      : lane_(lane), op_(op), n_(lane.group().ranks.size()), element_(size_of(op.call.type)) {
    const Rank me = lane.group().me;
    here_ = device_shape(op.collective, me, op.root, n_);
    // Slices must be the same on every rank: what a root has more of counts everywhere.
    blocks_ = {1, 1};
    for (Rank r = 0; r < static_cast<Rank>(n_); ++r) {
      const DeviceShape s = device_shape(op.collective, r, op.root, n_);
      blocks_.in = std::max(blocks_.in, s.in);
      blocks_.out = std::max(blocks_.out, s.out);
    }
    const std::size_t widest = std::max(blocks_.in, blocks_.out) * element_;
    slice_ = std::min(op.call.count, std::max<std::size_t>(1, kSliceBytes / widest));
    // Both buffers of a slot begin at cache lines.
    in_bytes_ = (slice_ * blocks_.in * element_ + 63) / 64 * 64;
    slot_bytes_ = in_bytes_ + (slice_ * blocks_.out * element_ + 63) / 64 * 64;
    memory_ = lane.staging(kSlots * slot_bytes_);
    gpu_ = std::max({op.mine.out.gpu, op.mine.in.gpu, 0});
  }

  Status run() {
    const std::size_t slices = (op_.call.count + slice_ - 1) / slice_;
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

  std::size_t length(std::size_t k) const {
    return std::min(slice_, op_.call.count - k * slice_);
  }
  std::byte* in(std::size_t k) const { return memory_ + k % kSlots * slot_bytes_; }
  std::byte* out(std::size_t k) const { return in(k) + in_bytes_; }

  void down(std::size_t k) {
    const Device::Event ready = lane_.event(gpu_, kDown + k % kSlots);
    // The slot's last slice is up before its memory is written again.
    lane_.wait(lane_.event(gpu_, kUp + k % kSlots));
    const auto* from = static_cast<const std::byte*>(op_.call.in);
    for (std::size_t b = 0; b < here_.in; ++b)
      lane_.device().copy(in(k) + b * length(k) * element_,
                          from + (b * op_.call.count + k * slice_) * element_,
                          length(k) * element_, gpu_, lane_.stream(gpu_, 0));
    lane_.device().record(ready, lane_.stream(gpu_, 0));
  }

  void exchange(std::size_t k) {
    lane_.wait(lane_.event(gpu_, kDown + k % kSlots));
    handles_[k % kSlots] = start_on_host(lane_.wire(), op_.collective, in(k), out(k), length(k),
                                         op_.call, op_.root);
  }

  Status up(std::size_t k) {
    if (Status s = handles_[k % kSlots].wait(); !s.ok()) return s;
    auto* to = static_cast<std::byte*>(op_.call.out);
    for (std::size_t b = 0; b < here_.out; ++b)
      lane_.device().copy(to + (b * op_.call.count + k * slice_) * element_,
                          out(k) + b * length(k) * element_, length(k) * element_, gpu_,
                          lane_.stream(gpu_, 1));
    lane_.device().record(lane_.event(gpu_, kUp + k % kSlots), lane_.stream(gpu_, 1));
    return {};
  }

  DeviceLane& lane_;
  const DeviceOperation& op_;
  std::size_t n_, element_;
  DeviceShape here_, blocks_;
  std::size_t slice_, in_bytes_, slot_bytes_;
  std::byte* memory_;
  int gpu_;
  std::array<Handle, kSlots> handles_;
};

}  // namespace

Status run_staged(DeviceLane& lane, const DeviceOperation& op) {
  if (op.collective == Collective::kBarrier) return lane.wire().barrier();
  return Staging(lane, op).run();
}

Handle start_on_host(Communicator& wire, Collective c, const void* in, void* out,
                     std::size_t count, const Call& call, Rank root) {
  const Reduction op{call.op, call.factor};
  switch (c) {
    case Collective::kAllReduce:
      return wire.all_reduce_async(in, out, count, call.type, op);
    case Collective::kAllGather:
      return wire.all_gather_async(in, out, count, call.type);
    case Collective::kReduceScatter:
      return wire.reduce_scatter_async(in, out, count, call.type, op);
    case Collective::kBroadcast:
      return wire.broadcast_async(in, out, count, call.type, root);
    case Collective::kReduce:
      return wire.reduce_async(in, out, count, call.type, op, root);
    case Collective::kGather:
      return wire.gather_async(in, out, count, call.type, root);
    case Collective::kScatter:
      return wire.scatter_async(in, out, count, call.type, root);
    case Collective::kAllToAll:
      return wire.all_to_all_async(in, out, count, call.type);
    case Collective::kBarrier:
      return wire.barrier_async();
    default:
      throw Error(fmt::format("{} does not take device memory or a stream", name(c)));
  }
}

}  // namespace weft
