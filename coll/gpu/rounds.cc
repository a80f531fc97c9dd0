// Does the work of a run on device memory, and the staged path: the rounds' copies lie in pinned
// host memory, where the host's plan and kernels work on them. While one round comes down, another
// is with the host, and another goes up. Every algorithm, transport and mode of the host serves,
// and so does all memory.
#include "coll/gpu/rounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "coll/gpu/kernels.h"
#include "coll/schedule/footprint.h"

namespace weft {

DeviceRounds::DeviceRounds(DeviceLane& lane, const DeviceOperation& op, bool on_device,
                           std::size_t round_bytes)
    : Compute(on_device, round_bytes),
      lane_(lane),
      op_(op),
      gpu_(std::max({op.mine.out.gpu, op.mine.in.gpu, 0})) {}

Status DeviceRounds::run(Collective collective, Call call, Rank root) {
  Request task = lane_.start_by(*this, collective, std::move(call), root);
  try {
    Backoff patience;
    while (!task.test()) {
      if (turn())
        patience.reset();
      else
        patience.pause();
    }
  } catch (const Error& e) {
    // Peers will not answer what is under way, and must not be waited for.
    lane_.fail(fmt::format("{}: {}", name(op_.collective), e.what()));
    throw;
  }
  return task.wait();
}

// Starts what the engine has given out, and hands back what has ended. False: nothing moved.
bool DeviceRounds::turn() {
  std::vector<Work> ended, given;
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
  for (const Work::Slice& slice : work.slices)
    work.kind == Work::Kind::kBring ? bring(slice, stream) : take(slice, stream);
  if (free_events_.empty()) free_events_.push_back(events_++);
  const std::size_t event = free_events_.back();
  free_events_.pop_back();
  lane_.device().record(lane_.event(gpu_, event), stream);
  started_.push_back({std::move(work), event});
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

  // Runs the task of a communicator of one rank, which has no plan.
  Status run_alone() {
    const std::size_t element = size_of(op_.call.type), most = round_bytes() / element;
    std::byte* const at = lane_.staging(2 * most * element);
    const Device::Event event = lane_.event(gpu_, 0);
    const auto wait = [&] {
      lane_.device().record(event, lane_.stream(gpu_, 0));
      lane_.wait(event);
    };
    for (std::size_t first = 0; first < in_[0].count; first += most) {
      const Work::Slice slice{at, 0, first, std::min(most, in_[0].count - first)};
      bring(slice, lane_.stream(gpu_, 0));
      wait();
      Call call = op_.call;
      call.in = at;
      call.out = at + most * element;
      call.count = slice.count;
      call.counts = call.recv_counts = {&slice.count, std::size_t{call.is_vector}};
      call.offsets = call.recv_offsets = {};
      if (op_.collective != Collective::kAllToAll) call.recv_counts = {};
      if (Status s = lane_.start_on_host(op_.collective, std::move(call), 0).wait(); !s.ok())
        return s;
      take({at + most * element, 0, first, slice.count}, lane_.stream(gpu_, 0));
      wait();
    }
    return {};
  }

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

Status run_staged(DeviceLane& lane, const DeviceOperation& op, std::size_t longest) {
  if (op.collective == Collective::kBarrier) return lane.wire().barrier();
  if (longest == 0) return {};
  // What a root has more of counts everywhere.
  const std::size_t ranks = lane.group().ranks.size(), element = size_of(op.call.type);
  const std::size_t round =
      std::min(longest * element, kStagedSlice / most_blocks(op.collective, ranks));
  Staged rounds(lane, op, std::max(round, element));
  return ranks == 1 ? rounds.run_alone() : rounds.run(op.collective, op.call, op.root);
}

}  // namespace weft
