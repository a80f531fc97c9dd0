// Feeds the engine's rounds with the data that the ranks of this host send to other hosts, and
// stores the results to all ranks of this host.
//
// The rank at place i exchanges what belongs to place i with the ranks at place i of the other
// hosts, over its own rail. In a reduction a round's input is the sum over the host, computed by
// one kernel that reads all buffers of the host. The result goes to all buffers that receive it.
// Data between ranks of a host crosses no NIC and waits for no rank: no two ranks write the same
// bytes, and a rank overwrites in place only bytes that no other rank reads.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "coll/footprint.h"
#include "coll/gpu/gpudirect.h"
#include "coll/gpu/mapped.h"
#include "coll/gpu/rounds.h"

namespace weft {
namespace {

class BetweenHosts final : public DeviceRounds {
 public:
  BetweenHosts(DeviceLane& lane, const DeviceOperation& op, const NicLayout& layout,
               std::span<const DeviceRecord> records, const MappedBuffers& buffers,
               std::span<std::byte> memory)
      : DeviceRounds(
            lane, op, !memory.empty(),
            round_bytes_of(op, op.call.count * blocks_to_a_host(op, layout), layout.hosts.size())),
        layout_(layout),
        records_(records),
        buffers_(buffers),
        memory_(memory),
        places_(layout.hosts[0].size()),
        count_(op.call.count),
        use_(footprint(op.collective())) {
    for (std::size_t h = 0; h < layout.hosts.size(); ++h) {
      const std::vector<Rank>& host = layout.hosts[h];
      if (places_ > 1) across_.push_back(host[layout.place]);
      const auto root = std::ranges::find(host, op.root());
      if (root == host.end()) continue;
      root_host_ = static_cast<Rank>(h);
      root_place_ = static_cast<std::size_t>(root - host.begin());
    }
  }

  Status run() {
    Call call = op_.call;
    if (by_blocks(op_.collective())) {
      call.count *= blocks_to_a_host(op_, layout_);
    } else {  // the places divide a message among them
      share_ = share_of(layout_.place);
      call.count = share_of(layout_.place + 1) - share_;
    }
    // bring() applies factors, and take() averages.
    if (call.op == RedOp::kPreMulSum || call.op == RedOp::kAvg) call.op = RedOp::kSum;
    return DeviceRounds::run(call, root_host_, across_);
  }

  std::byte* memory(std::size_t bytes) override {
    if (!on_device()) return lane_.staging(bytes);
    if (bytes > memory_.size())
      throw Error(
          fmt::format("a round takes {} bytes of GPU memory; there are {}", bytes, memory_.size()));
    return memory_.data();
  }

 private:
  static constexpr std::size_t kHost = ~std::size_t{0};  // all places of this host

  // In an all_to_all, a block between hosts has one block for each rank of the host.
  static std::size_t blocks_to_a_host(const DeviceOperation& op, const NicLayout& layout) {
    return op.collective() == Collective::kAllToAll ? layout.hosts[0].size() : 1;
  }
  // The first element of a place's share of a message, aligned to the vectors of the kernels.
  std::size_t share_of(std::size_t place) const {
    const std::size_t grain = 256 / size_of(op_.call.type), grains = (count_ + grain - 1) / grain;
    return std::min(count_, grains * place / places_ * grain);
  }
  // The first element of the user's block of the rank at this place.
  std::size_t block_at(std::size_t host, std::size_t place) const {
    return static_cast<std::size_t>(layout_.hosts[host][place]) * count_;
  }

  // Calls each(place, element, at, count) for the parts of a slice that lie in one block of the
  // user: the place that the block belongs to, and where the part begins in the block.
  template <class Each>
  void each_part(const Work::Slice& slice, Part part, const Each& each) const {
    if (part != Part::kAll) return each(layout_.place, share_ + slice.first, slice.at, slice.count);
    std::byte* at = slice.at;
    for (std::size_t first = slice.first, left = slice.count; left != 0;) {
      const std::size_t count = std::min(left, count_ - first % count_);
      const bool several = op_.collective() == Collective::kAllToAll;
      each(several ? first / count_ : layout_.place, first % count_, at, count);
      at += count * size_of(op_.call.type);
      first += count;
      left -= count;
    }
  }

  void bring(const Work::Slice& slice, Device::Stream stream) override {
    each_part(slice, use_.in, [&](auto place, auto element, std::byte* at, auto count) {
      if (use_.in == Part::kAll) element += block_at(slice.block, place);
      DeviceReduce r;
      r.type = op_.call.type;
      r.nsrcs = r.ndsts = 1;
      r.count = count;
      r.dsts[0] = at;
      if (reduces(op_.collective())) {
        if (op_.call.op != RedOp::kAvg) r.op = op_.call.op;
        r.nsrcs = static_cast<int>(places_);
        for (std::size_t p = 0; p < places_; ++p) {
          r.srcs[p] = buffers_.in(p, element);
          const Rank rank = layout_.hosts[layout_.host][p];
          r.factors[p] = records_[static_cast<std::size_t>(rank)].factor;
        }
      } else {
        r.srcs[0] = buffers_.in(from_root(op_.collective()) ? root_place_ : layout_.place, element);
      }
      work(r, stream);
    });
  }

  void take(const Work::Slice& slice, Device::Stream stream) override {
    each_part(slice, use_.out, [&](auto place, auto element, std::byte* at, auto count) {
      if (use_.out == Part::kAll) element += block_at(slice.block, layout_.place);
      const bool to_root = rooted(op_.collective()) && !from_root(op_.collective());
      const bool own = by_blocks(op_.collective()) && use_.in == Part::kAll;
      const std::size_t whose = to_root ? root_place_ : own ? place : kHost;
      DeviceReduce r;
      r.type = op_.call.type;
      r.nsrcs = 1;
      r.count = count;
      if (reduces(op_.collective()) && op_.call.op == RedOp::kAvg) {
        r.op = RedOp::kAvg;
        r.divisor = static_cast<int>(records_.size());
      }
      r.srcs[0] = at;
      for (std::size_t p = 0; p < places_; ++p)
        if (whose == kHost || whose == p) r.dsts[r.ndsts++] = buffers_.out(p, element);
      work(r, stream);
    });
  }

  const NicLayout& layout_;
  std::span<const DeviceRecord> records_;
  const MappedBuffers& buffers_;
  const std::span<std::byte> memory_;
  const std::size_t places_, count_;
  const Footprint use_;  // the root's footprint
  std::size_t share_ = 0, root_place_ = 0;
  Rank root_host_ = 0;
  std::vector<Rank> across_;  // empty: all ranks of the group
};

}  // namespace

Status GpuDirect::run(Way way, const DeviceOperation& op, std::span<const DeviceRecord> records,
                      const MappedBuffers& buffers) {
  const auto gpu = static_cast<std::size_t>(std::max(op.mine.in.gpu, op.mine.out.gpu));
  std::span<std::byte> memory;
  if (way == kNics) memory = {gpus_.at(gpu).memory.get(), kComputeScratchMax};
  return BetweenHosts(lane_, op, layout_, records, buffers, memory).run();
}

}  // namespace weft
