// Slices of up to 2 MiB, five under way, each in up to five stages:
//
//   down     what the slice reads, from the user's buffer to the lane's
//   first    messages with all peers
//   combine  where values are reduced: by the kernel, in the order of ranks
//   second   messages with all peers, where a result is more than one rank's
//   up       to the user's buffer
//
// Messages go from everybody to everybody: each byte crosses the wires as often as in the best
// schedule of the host, in one or two steps. A reduction is shared out: rank i reduces part i.
#include "coll/device_by_cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "coll/device_shape.h"

namespace weft {
namespace {

constexpr std::size_t kUnderWay = 5;
// Of the larger buffer of a slice. All that cuts is the same on every rank, and follows from the
// call alone.
constexpr std::size_t kPieceBytes = std::size_t{2} << 20;
constexpr std::size_t kGrain = 256;  // areas, blocks and shares begin at multiples of it
// Three areas: what is read, what comes for a reduction, the result; each up to a slice and a grain
// for every rank.
constexpr std::size_t kAreasBytes = 3 * (kPieceBytes + kDeviceOperands * kGrain);

std::size_t whole_grains(std::size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

class ByCards {
 public:
  ByCards(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
           std::byte* memory)
      : lane_(lane),
        op_(op),
        records_(records),
        n_(records.size()),
        me_(static_cast<std::size_t>(lane.group().me)),
        root_(static_cast<std::size_t>(op.root)),
        element_(size_of(op.call.type)),
        gpu_(std::max(op.mine.in.gpu, op.mine.out.gpu)),
        memory_(memory) {
    slice_ = std::min(op.call.count,
                      std::max<std::size_t>(1, kPieceBytes / (most_blocks(op, n_) * element_)));
  }
  ~ByCards() {
    for (auto& slot : under_way_)
      for (auto& messages : slot) (void)wait(messages);
  }
  ByCards(const ByCards&) = delete;
  ByCards& operator=(const ByCards&) = delete;

  Status run() {
    const std::size_t slices = (op_.call.count + slice_ - 1) / slice_;
    for (std::size_t k = 0; k < slices + kUnderWay - 1; ++k) {
      const auto due = [&](std::size_t stage) { return k >= stage && k - stage < slices; };
      if (due(0)) down(k);
      if (due(1))
        if (Status s = send_first(k - 1); !s.ok()) return s;
      if (due(2))
        if (Status s = combine(k - 2); !s.ok()) return s;
      if (due(3))
        if (Status s = send_second(k - 3); !s.ok()) return s;
      if (due(4))
        if (Status s = up(k - 4); !s.ok()) return s;
    }
    for (std::size_t slot = 0; slot < std::min(kUnderWay, slices); ++slot)
      lane_.wait(lane_.event(gpu_, kUp + slot));
    return {};
  }

 private:
  // Events by slot: its last copy down, kernel, and copy up.
  static constexpr std::size_t kDown = 0, kCombined = kUnderWay, kUp = 2 * kUnderWay;
  enum Phase : std::size_t { kFirst, kSecond };

  // ---- where things are, of slice k
  std::size_t length(std::size_t k) const {
    return std::min(slice_, op_.call.count - k * slice_);
  }
  std::byte* area(std::size_t k, std::size_t which) const {
    return memory_ + k % kUnderWay * kAreasBytes + which * (kAreasBytes / 3);
  }
  std::size_t stride(std::size_t k) const { return whole_grains(length(k) * element_); }
  std::byte* read(std::size_t k, std::size_t block = 0) const {
    return area(k, 0) + block * stride(k);
  }
  std::byte* result(std::size_t k, std::size_t block = 0) const {
    return area(k, 2) + block * stride(k);
  }
  // Share i of so many, of a slice that is one block: where it begins, in elements.
  std::size_t begin(std::size_t k, std::size_t i, std::size_t shares) const {
    const std::size_t grain = kGrain / element_, grains = (length(k) + grain - 1) / grain;
    return std::min(length(k), grains * i / shares * grain);
  }
  std::size_t share(std::size_t k, std::size_t i, std::size_t shares) const {
    return begin(k, i + 1, shares) - begin(k, i, shares);
  }
  // What rank r sent for the reduction.
  std::byte* operand(std::size_t k, std::size_t r) const {
    const bool shared = op_.collective != Collective::kReduceScatter;
    const std::size_t bytes = (shared ? share(k, me_, n_) : length(k)) * element_;
    return area(k, 1) + r * whole_grains(bytes);
  }

  // ---- stages
  void copy(void* to, const void* from, std::size_t bytes, int stream) {
    if (to != from) lane_.device().copy(to, from, bytes, gpu_, lane_.stream(gpu_, stream));
  }

  void down(std::size_t k) {
    // The slot's last slice is up before its memory is written again.
    lane_.wait(lane_.event(gpu_, kUp + k % kUnderWay));
    const auto* from = static_cast<const std::byte*>(op_.call.in);
    const DeviceShape here = device_shape(op_.collective, lane_.group().me, op_.root, n_);
    for (std::size_t b = 0; b < here.in; ++b)
      copy(read(k, b), from + (b * op_.call.count + k * slice_) * element_, length(k) * element_,
           0);
    lane_.device().record(lane_.event(gpu_, kDown + k % kUnderWay), lane_.stream(gpu_, 0));
  }

  Status send_first(std::size_t k) {
    lane_.wait(lane_.event(gpu_, kDown + k % kUnderWay));
    const std::size_t whole = length(k);
    const bool at_root = me_ == root_;
    for (std::size_t i = 1; i < n_; ++i) {
      const std::size_t to = (me_ + i) % n_, from = (me_ + n_ - i) % n_;
      switch (op_.collective) {
        case Collective::kAllReduce:
        case Collective::kReduce:
          recv(k, kFirst, from, operand(k, from), share(k, me_, n_));
          send(k, kFirst, to, read(k) + begin(k, to, n_) * element_, share(k, to, n_));
          break;
        case Collective::kReduceScatter:
          recv(k, kFirst, from, operand(k, from), whole);
          send(k, kFirst, to, read(k, to), whole);
          break;
        case Collective::kAllGather:
          recv(k, kFirst, from, result(k, from), whole);
          send(k, kFirst, to, read(k), whole);
          break;
        case Collective::kAllToAll:
          recv(k, kFirst, from, result(k, from), whole);
          send(k, kFirst, to, read(k, to), whole);
          break;
        case Collective::kGather:
          if (at_root) recv(k, kFirst, from, result(k, from), whole);
          if (to == root_) send(k, kFirst, to, read(k), whole);
          break;
        case Collective::kScatter:
          if (from == root_) recv(k, kFirst, from, result(k), whole);
          if (at_root) send(k, kFirst, to, read(k, to), whole);
          break;
        case Collective::kBroadcast:
          // A part to each, who pass theirs on to the others.
          if (from == root_) recv(k, kFirst, from, passed_on(k, me_), passed(k, me_));
          if (at_root)
            send(k, kFirst, to, read(k) + (passed_on(k, to) - result(k)), passed(k, to));
          break;
        default:
          break;
      }
    }
    return post();
  }

  Status combine(std::size_t k) {
    if (Status s = arrived(k, kFirst); !s.ok()) return s;
    if (!reduces(op_.collective)) return {};
    const bool shared = op_.collective != Collective::kReduceScatter;
    const std::size_t at = shared ? begin(k, me_, n_) * element_ : 0;
    DeviceReduce r;
    r.type = op_.call.type;
    r.op = op_.call.op;
    r.divisor = op_.call.op == RedOp::kAvg ? static_cast<int>(n_) : 1;
    r.nsrcs = static_cast<int>(n_);
    r.ndsts = 1;
    r.count = shared ? share(k, me_, n_) : length(k);
    if (r.count == 0) return {};
    for (std::size_t s = 0; s < n_; ++s) {
      r.srcs[s] = s != me_ ? operand(k, s) : shared ? read(k) + at : read(k, me_);
      r.factors[s] = records_[s].factor;
    }
    r.dsts[0] = result(k) + at;
    lane_.device().launch(device_work(r), gpu_, lane_.stream(gpu_, 1));
    lane_.device().record(lane_.event(gpu_, kCombined + k % kUnderWay), lane_.stream(gpu_, 1));
    return {};
  }

  Status send_second(std::size_t k) {
    lane_.wait(lane_.event(gpu_, kCombined + k % kUnderWay));
    const auto part = [&](std::size_t r) { return result(k) + begin(k, r, n_) * element_; };
    const std::size_t mine = share(k, me_, n_);
    for (std::size_t i = 1; i < n_; ++i) {
      const std::size_t to = (me_ + i) % n_, from = (me_ + n_ - i) % n_;
      switch (op_.collective) {
        case Collective::kAllReduce:
          recv(k, kSecond, from, part(from), share(k, from, n_));
          send(k, kSecond, to, part(me_), mine);
          break;
        case Collective::kReduce:
          if (me_ == root_) recv(k, kSecond, from, part(from), share(k, from, n_));
          if (to == root_) send(k, kSecond, to, part(me_), mine);
          break;
        case Collective::kBroadcast:
          if (me_ == root_) break;
          if (from != root_) recv(k, kSecond, from, passed_on(k, from), passed(k, from));
          if (to != root_) send(k, kSecond, to, passed_on(k, me_), passed(k, me_));
          break;
        default:
          break;
      }
    }
    return post();
  }

  Status up(std::size_t k) {
    if (Status s = arrived(k, kSecond); !s.ok()) return s;
    auto* const to = static_cast<std::byte*>(op_.call.out) + k * slice_ * element_;
    const std::size_t bytes = length(k) * element_;
    const bool at_root = me_ == root_;
    switch (op_.collective) {
      case Collective::kAllReduce:
      case Collective::kReduceScatter:
        copy(to, result(k), bytes, 1);
        break;
      case Collective::kReduce:
        if (at_root) copy(to, result(k), bytes, 1);
        break;
      case Collective::kBroadcast:
        copy(to, at_root ? read(k) : result(k), bytes, 1);
        break;
      case Collective::kScatter:
        copy(to, at_root ? read(k, me_) : result(k), bytes, 1);
        break;
      case Collective::kGather:
        if (!at_root) break;
        [[fallthrough]];
      case Collective::kAllGather:
      case Collective::kAllToAll: {
        const std::size_t own = op_.collective == Collective::kAllToAll ? me_ : 0;
        for (std::size_t r = 0; r < n_; ++r)
          copy(to + r * op_.call.count * element_, r == me_ ? read(k, own) : result(k, r), bytes,
               1);
        break;
      }
      default:
        break;
    }
    lane_.device().record(lane_.event(gpu_, kUp + k % kUnderWay), lane_.stream(gpu_, 1));
    return {};
  }

  // Of a broadcast: the part that rank r, not the root, passes on.
  std::byte* passed_on(std::size_t k, std::size_t r) const {
    return result(k) + begin(k, r - (r > root_), n_ - 1) * element_;
  }
  std::size_t passed(std::size_t k, std::size_t r) const {
    return share(k, r - (r > root_), n_ - 1);
  }

  // ---- messages
  struct Posting {
    std::size_t slot, phase, peer;
    bool sends;
    std::byte* at;
    std::size_t count;
  };
  void send(std::size_t k, Phase phase, std::size_t peer, std::byte* at, std::size_t count) {
    if (count) to_post_.push_back({k % kUnderWay, phase, peer, true, at, count});
  }
  void recv(std::size_t k, Phase phase, std::size_t peer, std::byte* at, std::size_t count) {
    if (count) to_post_.push_back({k % kUnderWay, phase, peer, false, at, count});
  }

  Status post() {
    Core& core = *lane_.group().core;
    const std::lock_guard lock(core.mutex);
    if (core.broken) return core.failure;
    for (const Posting& p : to_post_) {
      Operation* const op = core.take();
      op->collective = Collective::kSendRecv;
      op->group = &lane_.companion();
      op->root = static_cast<Rank>(p.peer);
      op->call = {.count = p.count, .type = op_.call.type};
      core.start_message(op, p.sends, p.at, p.count * element_, true);
      under_way_[p.slot][p.phase].push_back(op);
    }
    to_post_.clear();
    return {};
  }

  // Waits for the messages of a slice; work that starts from now on sees what has come.
  Status arrived(std::size_t k, Phase phase) {
    auto& messages = under_way_[k % kUnderWay][phase];
    if (messages.empty()) return {};
    if (Status s = wait(messages); !s.ok()) return s;
    lane_.device().flush_remote_writes(gpu_);
    return {};
  }

  // All of them, also when one has failed.
  Status wait(std::vector<Operation*>& messages) {
    Status first;
    for (Operation* const op : messages)
      if (Status s = lane_.group().core->wait(op); !s.ok() && first.ok()) first = s;
    messages.clear();
    return first;
  }

  DeviceLane& lane_;
  const DeviceOperation& op_;
  std::span<const DeviceRecord> records_;
  std::size_t n_, me_, root_, element_;
  int gpu_;
  std::byte* memory_;
  std::size_t slice_ = 1;
  std::vector<Posting> to_post_;
  std::array<std::array<std::vector<Operation*>, 2>, kUnderWay> under_way_;
};

}  // namespace

const std::size_t kByCardsBytes = kUnderWay * kAreasBytes;

std::size_t most_blocks(const DeviceOperation& op, std::size_t ranks) {
  const DeviceShape s = device_shape(op.collective, op.root, op.root, ranks);
  return std::max(s.in, s.out);
}

Status run_by_cards(DeviceLane& lane, const DeviceOperation& op,
                    std::span<const DeviceRecord> records, std::byte* memory) {
  ByCards exchange(lane, op, records, memory);
  try {
    return exchange.run();
  } catch (const Error& e) {
    // Peers will not answer what is under way, and must not be waited for.
    const GroupState& g = lane.group();
    const std::lock_guard lock(g.core->mutex);
    if (!g.core->broken)
      g.core->fail({Code::kTransport, fmt::format("{}: {}", name(op.collective), e.what()),
                    g.ranks[static_cast<std::size_t>(g.me)]});
    throw;
  }
}

}  // namespace weft
