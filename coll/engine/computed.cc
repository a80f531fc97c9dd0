// The engine with a Compute: rounds work on copies, which the Compute loads and stores.
#include <algorithm>
#include <set>

#include "coll/engine/engine.h"
#include "coll/footprint.h"

namespace weft {
namespace {

constexpr std::size_t kGrain = 256;

std::size_t whole_grains(std::size_t n) { return (n + kGrain - 1) / kGrain * kGrain; }

}  // namespace

Slicing slicing_for(const Compute& compute, const Plan& plan) {
  const auto ranks = static_cast<std::size_t>(plan.schedule.nranks);
  auto chunks = static_cast<std::size_t>(plan.nchunks);
  if (plan.collective == Collective::kAllToAll) chunks /= ranks;
  if (by_blocks(plan.collective)) chunks = std::max<std::size_t>(1, chunks / ranks);
  const std::size_t slice =
      std::min(compute.round_bytes() / chunks,
               kComputeAhead / (kArrivalsAhead * std::max(ranks, std::size_t{2}) - kArrivalsAhead));
  return {slice > kGrain ? slice / kGrain * kGrain : slice, kComputeRounds};
}

// The copies of a round's input and output lie behind the rest of the lane's scratch. Blocks begin
// at multiples of the GPU kernels' vectors.
void Run::place_copies() {
  const Footprint f = footprint(plan_->collective);
  const auto ranks = static_cast<std::size_t>(plan_->schedule.nranks);
  const std::size_t stride = whole_grains(segment_ * element_);
  copy_stride_ = stride / element_;
  copy_in_ = whole_grains(lane_bytes_);
  copy_out_ = copy_in_ + (plan_->inputs.empty() ? 0 : blocks_in(f.in, ranks) * stride);
  lane_bytes_ = copy_out_ + (plan_->results.empty() ? 0 : blocks_in(f.out, ranks) * stride);
}

// The parts of the user's input, or output, that the lane's round copies.
std::vector<Work::Slice> Run::slices_of(std::uint32_t lane, bool out) const {
  std::vector<Work::Slice> slices;
  const std::vector<int>& chunks = out ? plan_->results : plan_->inputs;
  const std::size_t first = lanes_[lane].round * segment_;
  std::byte* const copy = base_ + lane * lane_bytes_ + (out ? copy_out_ : copy_in_);
  if (chunks.empty() || barrier_) return slices;
  if (plan_->layout == Plan::Layout::kMessage) {
    slices.push_back({copy, 0, first, elements_of(lanes_[lane].round)});
    return slices;
  }
  std::set<int> seen;
  for (const int c : chunks) {
    const int block = plan_->pieces[static_cast<std::size_t>(c)].block;
    const std::size_t count = block_count(block);
    if (count <= first || !seen.insert(block).second) continue;
    slices.push_back({copy + block_at(out, block) * element_, number_of(out, block), first,
                      std::min(segment_, count - first)});
  }
  return slices;
}

// Adds the copy of one chunk of the round's input.
void Run::give_copy(Work& work, std::uint32_t lane, int chunk, Where to) const {
  const Cut& cut = cuts_[lanes_[lane].cut];
  const std::size_t count = cut.length[static_cast<std::size_t>(chunk)];
  std::byte* const at = address(to, offset(to, chunk, cut), lane);
  const void* const from = address(Where::kIn, offset(Where::kIn, chunk, cut), lane);
  if (count && at != from) work.sums.push_back({at, {from}, count});
}

void Run::give_bring(std::uint32_t lane) {
  Work work{Work::Kind::kBring, lane, 0, slices_of(lane, false)};
  if (on_device())
    for (const int c : plan_->stage_in) {
      const bool here = plan_->scratch_of[static_cast<std::size_t>(c)] < 0;
      give_copy(work, lane, c, here ? Where::kOut : Where::kScratch);
    }
  if (work.slices.empty()) return begin_round(lane);
  compute_->give(std::move(work));
}

void Run::give_take(std::uint32_t lane) {
  Work work{Work::Kind::kTake, lane, 0, slices_of(lane, true)};
  if (on_device())
    for (const int c : plan_->copy_last) give_copy(work, lane, c, Where::kOut);
  if (work.slices.empty()) return leave_round(lane);
  compute_->give(std::move(work));
}

void Run::give_reduce(std::uint32_t lane, std::uint32_t node, std::byte* to) {
  Work work{Work::Kind::kReduce, lane, node};
  work.sums.push_back({to, sources_, extent(lane, node).bytes / element_});
  compute_->give(std::move(work));
}

void Run::take_ended() {
  for (const Work& work : compute_->take_ended()) {
    switch (work.kind) {
      case Work::Kind::kBring:
        begin_round(work.lane);
        break;
      case Work::Kind::kTake:
        leave_round(work.lane);
        break;
      case Work::Kind::kReduce:
      case Work::Kind::kLand:
        finish(work.lane, work.node);
        break;
    }
  }
}

}  // namespace weft
