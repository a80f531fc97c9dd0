// Runs a task between hosts in slices of up to 2 MiB, five under way, each in up to five
// stages:
//
//   down     copies the slice's input from the buffers of this host to the lane's memory
//   first    exchanges messages with all hosts
//   combine  reduces values, by the kernel and in the order of hosts
//   second   exchanges messages with all hosts, where a result is more than one rank's
//   up       copies the result to the buffers of this host
//
// The ranks of a host share out the work between hosts: the rank at place i exchanges what belongs
// to place i with the ranks at place i of the other hosts, over its own rail. In a reduction `down`
// reduces over the host. `up` writes to all buffers that take the result. Data between ranks of a
// host crosses no NIC and waits for no rank, as no two ranks write or read the same bytes.
//
// Every host exchanges with every other: each byte crosses the wires as often as in the best host
// schedule, in one or two steps. The hosts share out a reduction: host i reduces part i.
#include "coll/gpu/hierarchical.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "coll/gpu/mapped.h"
#include "coll/gpu/nic_slices.h"
#include "coll/runtime/message_task.h"

namespace weft {
namespace {

class GpuHierarchical : private NicSlices {
 public:
  GpuHierarchical(DeviceLane& lane, const DeviceOperation& op, const NicLayout& layout,
                  std::span<const DeviceRecord> records, const MappedBuffers& buffers,
                  std::byte* memory, bool on_device)
      : NicSlices(op, layout, memory),
        lane_(lane),
        records_(records),
        buffers_(buffers),
        gpu_(std::max(op.mine.in.gpu, op.mine.out.gpu)),
        on_device_(on_device) {}
  ~GpuHierarchical() {
    for (auto& slot : under_way_)
      for (auto& messages : slot) (void)wait(messages);
  }
  GpuHierarchical(const GpuHierarchical&) = delete;
  GpuHierarchical& operator=(const GpuHierarchical&) = delete;

  Status run() {
    const std::size_t slices = this->slices();
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
  // Events by slot: its last work down, kernel, and work up.
  static constexpr std::size_t kDown = 0, kCombined = kUnderWay, kUp = 2 * kUnderWay;
  enum Phase : std::size_t { kFirst, kSecond };
  static constexpr std::size_t kAll = ~std::size_t{0};  // places of this host

  // ---- stages
  // Slice k of a block of the ins of this host's ranks, reduced, or of one of them, to `to`.
  void read_block(std::size_t k, std::byte* to, std::size_t place, Rank block) {
    if (place != kAll || places_ == 1) {
      const std::size_t whose = place == kAll ? 0 : place;
      lane_.device().copy(to, buffers_.in(whose, at(k, block)), length(k) * element_, gpu_,
                          lane_.stream(gpu_, 0));
      return;
    }
    DeviceReduce r;
    r.type = op_.call.type;
    r.op = op_.call.op;
    r.nsrcs = static_cast<int>(places_);
    r.ndsts = 1;
    r.count = length(k);
    for (std::size_t p = 0; p < places_; ++p) {
      r.srcs[p] = buffers_.in(p, at(k, block));
      r.factors[p] = records_[static_cast<std::size_t>(rank_at(me_, p))].factor;
    }
    r.dsts[0] = to;
    lane_.device().launch(device_work(r), gpu_, lane_.stream(gpu_, 0));
  }
  // To slice k of a block of the outs of all of them, or of one.
  void write_block(std::size_t k, const std::byte* from, std::size_t place, Rank block) {
    if (place != kAll || places_ == 1) {
      const std::size_t whose = place == kAll ? 0 : place;
      lane_.device().copy(buffers_.out(whose, at(k, block)), from, length(k) * element_, gpu_,
                          lane_.stream(gpu_, 1));
      return;
    }
    DeviceReduce r;  // of one source: a copy
    r.type = op_.call.type;
    r.nsrcs = 1;
    r.ndsts = static_cast<int>(places_);
    r.count = length(k);
    r.srcs[0] = from;
    for (std::size_t p = 0; p < places_; ++p) r.dsts[p] = buffers_.out(p, at(k, block));
    lane_.device().launch(device_work(r), gpu_, lane_.stream(gpu_, 1));
  }

  void down(std::size_t k) {
    // The slot's last slice is up before its memory is written again.
    lane_.wait(lane_.event(gpu_, kUp + k % kUnderWay));
    if (!from_root(op_.collective) || me_ == root_) {
      const std::size_t mine = layout_.place;
      const std::size_t whose = reduces_ ? kAll : from_root(op_.collective) ? root_place_ : mine;
      if (use_.in == Part::kOne) read_block(k, read(k), whose, 0);
      for (std::size_t h = 0; use_.in == Part::kAll && h < hosts_; ++h)
        for (std::size_t q = 0; q < wide_; ++q)
          read_block(k, read(k, h * wide_ + q), whose,
                     rank_at(h, use_.out == Part::kAll ? q : mine));
    }
    lane_.device().record(lane_.event(gpu_, kDown + k % kUnderWay), lane_.stream(gpu_, 0));
  }

  Status send_first(std::size_t k) {
    lane_.wait(lane_.event(gpu_, kDown + k % kUnderWay));
    const std::size_t whole = length(k);
    for (std::size_t i = 1; i < hosts_; ++i) {
      const std::size_t to = (me_ + i) % hosts_, from = (me_ + hosts_ - i) % hosts_;
      // Who reduces does so on all hosts, wherever the root is.
      const bool receives = reduces_ || (to_root() ? me_ == root_ : !rooted_ || from == root_);
      const bool sends = reduces_ || (to_root() ? to == root_ : !rooted_ || me_ == root_);
      if (by_blocks(op_.collective)) {
        for (std::size_t q = 0; receives && q < wide_; ++q)
          recv(k, kFirst, from,
               reduces_ ? operand(k, from)
                        : result(k, use_.out == Part::kAll ? from * wide_ + q : 0),
               whole);
        for (std::size_t q = 0; sends && q < wide_; ++q)
          send(k, kFirst, to, read(k, use_.in == Part::kAll ? to * wide_ + q : 0), whole);
      } else if (reduces_) {
        recv(k, kFirst, from, operand(k, from), share(k, me_, hosts_));
        send(k, kFirst, to, read(k) + begin(k, to, hosts_) * element_, share(k, to, hosts_));
      } else {  // a part of the broadcast to each, who pass theirs on to the others
        if (receives) recv(k, kFirst, from, passed_on(k, me_), passed(k, me_));
        if (sends) send(k, kFirst, to, read(k) + (passed_on(k, to) - result(k)), passed(k, to));
      }
    }
    return post();
  }

  Status combine(std::size_t k) {
    if (Status s = arrived(k, kFirst); !s.ok()) return s;
    if (!reduces_) return {};
    const bool shared = !by_blocks(op_.collective);
    const std::size_t from = shared ? begin(k, me_, hosts_) * element_ : 0;
    DeviceReduce r;
    r.type = op_.call.type;
    // Over several ranks of a host the factors are in it already.
    const bool factors_are_in = op_.call.op == RedOp::kPreMulSum && places_ > 1;
    r.op = factors_are_in ? RedOp::kSum : op_.call.op;
    r.divisor = op_.call.op == RedOp::kAvg ? static_cast<int>(records_.size()) : 1;
    r.nsrcs = static_cast<int>(hosts_);
    r.ndsts = 1;
    r.count = shared ? share(k, me_, hosts_) : length(k);
    if (r.count == 0) return {};
    for (std::size_t h = 0; h < hosts_; ++h) {
      r.srcs[h] = h != me_ ? operand(k, h) : shared ? read(k) + from : read(k, me_);
      r.factors[h] = records_[static_cast<std::size_t>(rank_at(h, 0))].factor;
    }
    r.dsts[0] = result(k) + from;
    lane_.device().launch(device_work(r), gpu_, lane_.stream(gpu_, 1));
    lane_.device().record(lane_.event(gpu_, kCombined + k % kUnderWay), lane_.stream(gpu_, 1));
    return {};
  }

  Status send_second(std::size_t k) {
    lane_.wait(lane_.event(gpu_, kCombined + k % kUnderWay));
    if (by_blocks(op_.collective)) return {};
    const auto part = [&](std::size_t h) { return result(k) + begin(k, h, hosts_) * element_; };
    for (std::size_t i = 1; i < hosts_; ++i) {
      const std::size_t to = (me_ + i) % hosts_, from = (me_ + hosts_ - i) % hosts_;
      if (reduces_) {
        if (!rooted_ || me_ == root_) recv(k, kSecond, from, part(from), share(k, from, hosts_));
        if (!rooted_ || to == root_) send(k, kSecond, to, part(me_), share(k, me_, hosts_));
      } else if (me_ != root_) {
        if (from != root_) recv(k, kSecond, from, passed_on(k, from), passed(k, from));
        if (to != root_) send(k, kSecond, to, passed_on(k, me_), passed(k, me_));
      }
    }
    return post();
  }

  Status up(std::size_t k) {
    if (Status s = arrived(k, kSecond); !s.ok()) return s;
    if (!to_root() || me_ == root_) {
      const std::size_t mine = layout_.place;
      const bool here = !reduces_ && me_ == root_;  // the result has not moved
      if (use_.out == Part::kOne)
        write_block(k, here ? read(k, use_.in == Part::kAll ? me_ : 0) : result(k),
                    to_root()                   ? root_place_
                    : by_blocks(op_.collective) ? mine
                                                : kAll,
                    0);
      for (std::size_t h = 0; use_.out == Part::kAll && h < hosts_; ++h)
        for (std::size_t q = 0; q < wide_; ++q) {
          const std::size_t block = h * wide_ + q;
          write_block(k, h != me_ ? result(k, block) : read(k, use_.in == Part::kAll ? block : 0),
                      to_root()               ? root_place_
                      : use_.in == Part::kAll ? q
                                              : kAll,
                      rank_at(h, mine));
        }
    }
    lane_.device().record(lane_.event(gpu_, kUp + k % kUnderWay), lane_.stream(gpu_, 1));
    return {};
  }

  // ---- messages
  struct Posting {
    std::size_t slot, phase, host;
    bool sends;
    std::byte* at;
    std::size_t count;
  };
  void send(std::size_t k, Phase phase, std::size_t host, std::byte* at, std::size_t count) {
    if (count) to_post_.push_back({k % kUnderWay, phase, host, true, at, count});
  }
  void recv(std::size_t k, Phase phase, std::size_t host, std::byte* at, std::size_t count) {
    if (count) to_post_.push_back({k % kUnderWay, phase, host, false, at, count});
  }

  Status post() {
    Core& core = *lane_.group().core;
    const CoreLock lock(core.mutex);
    if (core.broken) return core.failure;
    for (const Posting& p : to_post_) {
      under_way_[p.slot][p.phase].push_back(MessageTask::begin(lane_.companion(), p.sends,
                                                               rank_at(p.host, layout_.place), p.at,
                                                               p.count, op_.call.type, on_device_));
    }
    to_post_.clear();
    return {};
  }

  // Waits for the messages of a slice; work that starts from now on sees what has come.
  Status arrived(std::size_t k, Phase phase) {
    auto& messages = under_way_[k % kUnderWay][phase];
    if (messages.empty()) return {};
    if (Status s = wait(messages); !s.ok()) return s;
    if (on_device_) lane_.device().flush_remote_writes(gpu_);
    return {};
  }

  // All of them, also when one has failed.
  Status wait(std::vector<Task*>& messages) {
    Status first;
    for (Task* const op : messages)
      if (Status s = lane_.group().core->wait(op); !s.ok() && first.ok()) first = s;
    messages.clear();
    return first;
  }

  DeviceLane& lane_;
  std::span<const DeviceRecord> records_;
  const MappedBuffers& buffers_;
  const int gpu_;
  const bool on_device_;
  std::vector<Posting> to_post_;
  std::array<std::array<std::vector<Task*>, 2>, kUnderWay> under_way_;
};

}  // namespace

const std::size_t kHierarchicalBytes = NicSlices::kBytes;

Status run_gpu_hierarchical(DeviceLane& lane, const DeviceOperation& op, const NicLayout& layout,
                            std::span<const DeviceRecord> records, const MappedBuffers& buffers,
                            std::byte* memory, bool on_device) {
  GpuHierarchical exchange(lane, op, layout, records, buffers, memory, on_device);
  try {
    return exchange.run();
  } catch (const Error& e) {
    // Peers will not answer what is under way, and must not be waited for.
    lane.fail(fmt::format("{}: {}", name(op.collective), e.what()));
    throw;
  }
}

}  // namespace weft
