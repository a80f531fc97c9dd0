// Does the work of a run on device memory, and the staged path: the rounds' copies lie in pinned
// host memory, where the host's plan and kernels work on them. While one round is copied down,
// another is on the host, and another is copied up. Works with every algorithm, transport and mode
// of the host, and with all kinds of memory.
#include "coll/gpu/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coll/footprint.h"
#include "coll/gpu/blocks.h"

namespace weft {

DeviceRounds::DeviceRounds(DeviceLane& lane, const DeviceOperation& op, bool on_device,
                           std::size_t round_bytes)
    : Compute(on_device, round_bytes),
      lane_(lane),
      op_(op),
      gpu_(std::max({op.mine.out.gpu, op.mine.in.gpu, 0})) {}

Status DeviceRounds::run(const Call& call, Rank root, std::span<const Rank> across) {
  sum_op_ = call.op;
  Request task = lane_.start_by(*this, op_.collective(), call, root, across);
  try {
    Backoff patience;
    while (!task.test()) {
      if (turn())
        patience.reset();
      else
        patience.pause();
    }
  } catch (const std::exception& e) {
    // Peers will not answer transfers in flight, so they must not be waited for.
    lane_.fail(fmt::format("{}: {}", name(op_.collective()), e.what()));
    throw;
  }
  return task.wait();
}

// Starts the work that the engine has issued, and returns what has ended. False: nothing changed.
bool DeviceRounds::turn() {
  std::vector<Work> ended = std::exchange(landed_, {}), given;
  for (std::size_t i = 0; i < started_.size();) {
    if (!lane_.device().reached(lane_.event(gpu_, started_[i].event))) {
      ++i;
      continue;
    }
    free_events_.push_back(started_[i].event);
    ended.push_back(std::move(started_[i].work));
    started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  {
    const CoreLock lock(lane_.group().core->mutex);
    for (Work& work : ended) end(std::move(work));
    given = take_given();
  }
  for (Work& work : given) start(std::move(work));
  return !ended.empty() || !given.empty();
}

void DeviceRounds::start(Work&& work) {
  const Device::Stream stream = lane_.stream(gpu_, work.kind == Work::Kind::kBring ? 0 : 1);
  const bool brings = work.kind == Work::Kind::kBring;
  const auto sum = [&] {
    for (const Work::Sum& s : work.sums) {
      DeviceReduce r;
      r.type = op_.call.type;
      r.op = sum_op_;
      r.nsrcs = static_cast<int>(s.from.size());
      r.ndsts = 1;
      r.count = s.count;
      std::ranges::copy(s.from, r.srcs);
      r.dsts[0] = s.to;
      this->work(r, stream);
    }
  };
  // Work that starts from now on sees what NICs have written.
  if (on_device() && !brings) lane_.device().flush_remote_writes(gpu_);
  if (!brings) sum();
  for (const Work::Slice& slice : work.slices) brings ? bring(slice, stream) : take(slice, stream);
  if (brings) sum();
  if (work.kind == Work::Kind::kLand) return landed_.push_back(std::move(work));
  if (free_events_.empty()) free_events_.push_back(events_++);
  const std::size_t event = free_events_.back();
  free_events_.pop_back();
  lane_.device().record(lane_.event(gpu_, event), stream);
  started_.push_back({std::move(work), event});
}

void DeviceRounds::work(const DeviceReduce& r, Device::Stream stream) {
  const bool changes = r.op == RedOp::kAvg || r.op == RedOp::kPreMulSum;
  if (r.nsrcs > 1 || r.ndsts > 1 || changes)
    lane_.device().launch(device_work(r), gpu_, stream);
  else
    lane_.device().copy(r.dsts[0], r.srcs[0], r.count * size_of(r.type), gpu_, stream);
}

// ---- the staged path -----------------------------------------------------------------------

namespace {

class Staged final : public DeviceRounds {
 public:
  Staged(DeviceLane& lane, const DeviceOperation& op, std::size_t round_bytes)
      : DeviceRounds(lane, op, false, round_bytes),
        in_(device_blocks(op, lane.group().me, lane.group().ranks.size(), false)),
        out_(device_blocks(op, lane.group().me, lane.group().ranks.size(), true)) {}

  std::byte* memory(std::size_t bytes) override { return lane_.staging(bytes); }

 private:
  void bring(const Work::Slice& slice, Device::Stream stream) override {
    const std::size_t element = size_of(op_.call.type);
    lane_.device().copy(
        slice.at,
        static_cast<const std::byte*>(op_.call.in) + (in_[slice.block].at + slice.first) * element,
        slice.count * element, gpu_, stream);
  }
  void take(const Work::Slice& slice, Device::Stream stream) override {
    const std::size_t element = size_of(op_.call.type);
    lane_.device().copy(
        static_cast<std::byte*>(op_.call.out) + (out_[slice.block].at + slice.first) * element,
        slice.at, slice.count * element, gpu_, stream);
  }

  const std::vector<DeviceBlock> in_, out_;  // the user's
};

}  // namespace

std::size_t most_blocks(Collective collective, std::size_t ranks) {
  const Footprint f = footprint(collective);
  return std::max(blocks_in(f.in, ranks), blocks_in(f.out, ranks));
}

std::size_t round_bytes_of(const DeviceOperation& op, std::size_t longest, std::size_t ranks) {
  const std::size_t element = size_of(op.call.type);
  return std::max(element,
                  std::min(longest * element, kStagedSlice / most_blocks(op.collective(), ranks)));
}

Status run_staged(DeviceLane& lane, const DeviceOperation& op, std::size_t longest) {
  const std::size_t ranks = lane.group().ranks.size();
  return Staged(lane, op, round_bytes_of(op, longest, ranks)).run(op.call, op.root());
}

}  // namespace weft
