// The direct path: every rank reads its peers' device memory and writes the results where they
// belong, in one kernel or a few copies. The path reads and writes every byte once: no collective
// on one GPU can move fewer bytes.
#include <algorithm>

#include "coll/gpu/blocks.h"
#include "coll/gpu/gpudirect.h"
#include "coll/gpu/lane.h"
#include "coll/gpu/mapped.h"

namespace weft {
namespace {

bool never(const Shape&) { return false; }
Schedule none(const Shape& shape) {
  Schedule s;
  s.rank = shape.rank;
  s.nranks = shape.nranks;
  return s;
}

}  // namespace

const Algorithm kDirectPath{"device", Collective::kAllReduce, "in device memory", never, none};
const Algorithm kGpuDirectPath{"gpudirect", Collective::kAllReduce,
                               "in device memory, by RDMA NICs", never, none};
const Algorithm kStagedHostsPath{"staged_hierarchical", Collective::kAllReduce,
                                 "inside hosts in device memory, between them through host memory",
                                 never, none};
const Algorithm kStagedPath{"staged", Collective::kAllReduce, "through host memory", never, none};

namespace {

class DirectPath {
 public:
  DirectPath(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
             const MappedBuffers& buffers, std::span<const DeviceBlock> blocks)
      : lane_(lane),
        op_(op),
        records_(records),
        buffers_(buffers),
        blocks_(blocks),
        me_(static_cast<std::size_t>(lane.group().me)),
        n_(records.size()),
        element_(size_of(op.call.type)),
        gpu_(std::max(op.mine.in.gpu, op.mine.out.gpu)) {}
  void run();

 private:
  std::byte* in(std::size_t rank, std::size_t element) const { return buffers_.in(rank, element); }
  std::byte* out(std::size_t rank, std::size_t element) const {
    return buffers_.out(rank, element);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t count) {
    if (to != from) lane_.device().copy(to, from, count * element_, gpu_, lane_.stream(gpu_, 0));
  }
  void reduce_part(std::size_t count, std::size_t in_at, std::size_t out_at,
                   std::span<const std::size_t> results);
  void run_even();
  void run_uneven();

  DeviceLane& lane_;
  const DeviceOperation& op_;
  std::span<const DeviceRecord> records_;
  const MappedBuffers& buffers_;
  std::span<const DeviceBlock> blocks_;  // of a vector call: in the peers' inputs
  std::size_t me_, n_, element_;
  int gpu_;
};

// `count` elements of every rank's in, from element `in_at` on (or where its block is), are reduced
// to the outs of the ranks in `results`, from element `out_at` on.
void DirectPath::reduce_part(std::size_t count, std::size_t in_at, std::size_t out_at,
                             std::span<const std::size_t> results) {
  if (count == 0) return;
  DeviceReduce r;
  r.type = op_.call.type;
  r.op = op_.call.op;
  r.divisor = op_.call.op == RedOp::kAvg ? static_cast<int>(n_) : 1;
  r.nsrcs = static_cast<int>(n_);
  r.ndsts = static_cast<int>(results.size());
  r.count = count;
  for (std::size_t k = 0; k < n_; ++k) {
    r.srcs[k] = in(k, blocks_.empty() ? in_at : blocks_[k].at);
    r.factors[k] = records_[k].factor;
  }
  for (std::size_t d = 0; d < results.size(); ++d) r.dsts[d] = out(results[d], out_at);
  lane_.device().launch(device_work(r), gpu_, lane_.stream(gpu_, 0));
}

void DirectPath::run() {
  if (gpu_ < 0) return;  // all its blocks are empty
  if (op_.call.is_vector)
    run_uneven();
  else
    run_even();
  const Device::Event event = lane_.event(gpu_, 0);
  lane_.device().record(event, lane_.stream(gpu_, 0));
  lane_.wait(event);
}

// Every rank writes its own out.
void DirectPath::run_uneven() {
  const std::vector<DeviceBlock> outs = device_blocks(op_, static_cast<Rank>(me_), n_, true);
  if (op_.collective == Collective::kReduceScatter)
    return reduce_part(outs[0].count, 0, outs[0].at, {&me_, 1});
  for (std::size_t i = 0; i < n_ && !outs.empty(); ++i) {
    const std::size_t r = (me_ + i) % n_;
    if (op_.collective == Collective::kScatter && static_cast<Rank>(r) != op_.root) continue;
    const DeviceBlock& to = outs[outs.size() == n_ ? r : 0];
    if (to.count > 0) copy(out(me_, to.at), in(r, blocks_[r].at), to.count);
  }
}

void DirectPath::run_even() {
  const std::size_t count = op_.call.count;
  const auto root = static_cast<std::size_t>(op_.root);
  // My share of a whole message; shares begin at whole vectors.
  const std::size_t grain = 256 / element_, grains = (count + grain - 1) / grain;
  const auto share = [&](std::size_t i) { return std::min(count, grains * i / n_ * grain); };
  const std::size_t from = share(me_), mine = share(me_ + 1) - from;
  std::vector<std::size_t> all(n_);
  for (std::size_t r = 0; r < n_; ++r) all[r] = r;
  switch (op_.collective) {
    case Collective::kAllReduce:
      reduce_part(mine, from, from, all);
      break;
    case Collective::kReduce:
      reduce_part(mine, from, from, {&root, 1});
      break;
    case Collective::kReduceScatter:
      reduce_part(count, me_ * count, 0, {&me_, 1});
      break;
    case Collective::kAllGather:
      // Everybody begins with another rank: no memory is everybody's first.
      for (std::size_t i = 0; i < n_; ++i) {
        const std::size_t r = (me_ + i) % n_;
        copy(out(me_, r * count), in(r, 0), count);
      }
      break;
    case Collective::kBroadcast:
      copy(out(me_, 0), in(root, 0), count);
      break;
    case Collective::kGather:
      if (me_ == root)
        for (std::size_t r = 0; r < n_; ++r) copy(out(me_, r * count), in(r, 0), count);
      break;
    case Collective::kScatter:
      copy(out(me_, 0), in(root, me_ * count), count);
      break;
    case Collective::kAllToAll:
      for (std::size_t i = 0; i < n_; ++i) {
        const std::size_t r = (me_ + i) % n_;
        copy(out(me_, r * count), in(r, me_ * count), count);
      }
      break;
    default:
      break;
  }
}

}  // namespace

void run_direct(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
                const MappedBuffers& buffers, std::span<const DeviceBlock> blocks) {
  DirectPath(lane, op, records, buffers, blocks).run();
}

}  // namespace weft
