// The direct path: every rank reads its peers' device memory and writes the results to their
// destination, in one kernel or a few copies. Every byte is read and written once: no collective on
// one GPU can move fewer bytes.
#include <algorithm>
#include <numeric>
#include <vector>

#include "coll/footprint.h"
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
        blocks_(blocks.begin(), blocks.end()),
        use_(footprint(op.collective())),
        me_(static_cast<std::size_t>(lane.group().me)),
        n_(records.size()),
        gpu_(std::max(op.mine.in.gpu, op.mine.out.gpu)) {
    const std::size_t count = op.call.count;
    if (!op.call.is_vector) blocks_.assign(n_, {use_.in == Part::kAll ? me_ * count : 0, count});
  }

  void run() {
    if (gpu_ < 0) return;  // all its blocks are empty
    if (reduces(op_.collective()))
      reduce();
    else
      copy();
    const Device::Event event = lane_.event(gpu_, 0);
    lane_.device().record(event, lane_.stream(gpu_, 0));
    lane_.wait(event);
  }

 private:
  // Reduces this rank's block, or its share of the message, into every `out` that receives it.
  void reduce() {
    std::size_t from = 0, count = blocks_[me_].count;
    std::vector<std::size_t> results{use_.in == Part::kAll ? me_
                                                           : static_cast<std::size_t>(op_.root())};
    if (use_.in == Part::kOne) {  // shares begin at whole vectors
      const std::size_t grain = 256 / size_of(op_.call.type), grains = (count + grain - 1) / grain;
      const auto share = [&](std::size_t i) { return std::min(count, grains * i / n_ * grain); };
      from = share(me_);
      count = share(me_ + 1) - from;
      if (!rooted(op_.collective())) results.resize(n_);
      if (!rooted(op_.collective())) std::iota(results.begin(), results.end(), 0);
    }
    if (count == 0) return;
    DeviceReduce r;
    r.type = op_.call.type;
    r.op = op_.call.op;
    r.divisor = op_.call.op == RedOp::kAvg ? static_cast<int>(n_) : 1;
    r.nsrcs = static_cast<int>(n_);
    r.ndsts = static_cast<int>(results.size());
    r.count = count;
    for (std::size_t k = 0; k < n_; ++k) {
      r.srcs[k] = buffers_.in(k, blocks_[k].at + from);
      r.factors[k] = records_[k].factor;
    }
    for (std::size_t d = 0; d < results.size(); ++d) r.dsts[d] = buffers_.out(results[d], from);
    lane_.device().launch(device_work(r), gpu_, lane_.stream(gpu_, 0));
  }

  // Every rank writes its own out, and starts with a different source, to spread the reads.
  void copy() {
    const std::vector<DeviceBlock> outs = device_blocks(op_, static_cast<Rank>(me_), n_, true);
    for (std::size_t i = 0; i < n_ && !outs.empty(); ++i) {
      const std::size_t r = (me_ + i) % n_;
      if (from_root(op_.collective()) && static_cast<Rank>(r) != op_.root()) continue;
      const DeviceBlock& block = outs[outs.size() == n_ ? r : 0];
      std::byte* const to = buffers_.out(me_, block.at);
      const std::byte* const from = buffers_.in(r, blocks_[r].at);
      if (block.count > 0 && to != from)
        lane_.device().copy(to, from, block.count * size_of(op_.call.type), gpu_,
                            lane_.stream(gpu_, 0));
    }
  }

  DeviceLane& lane_;
  const DeviceOperation& op_;
  std::span<const DeviceRecord> records_;
  const MappedBuffers& buffers_;
  std::vector<DeviceBlock> blocks_;  // the part for this rank in each rank's in
  const Footprint use_;              // the root's footprint
  std::size_t me_, n_;
  int gpu_;
};

}  // namespace

void run_direct(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
                const MappedBuffers& buffers, std::span<const DeviceBlock> blocks) {
  DirectPath(lane, op, records, buffers, blocks).run();
}

}  // namespace weft
