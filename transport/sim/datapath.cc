// Moves each message through the simulated fabric, event by event. This file does not depend on
// collectives.
//
//   post -> [core of the sender] -> tx port -> latency -> [uplink of the leaf] -> [spine] ->
//   [downlink of the other leaf] -> rx port -> [core of the receiver] -> completion
//
// The fabric reads a message's bytes at the last time at which the sender must not change them, and
// writes them at the last time at which the receiver must not read them. An engine that accesses
// its buffers too early gets wrong data.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transport/sim/state.h"

namespace weft {

using M = SimMessage;
using Kind = SimEvent::Kind;

void SimFabric::State::post(Rank rank, const Transfer& t) {
  if (dead[rank]) return;
  const bool sending = t.kind == Transfer::Kind::kSend;
  const bool as_view = t.kind == Transfer::Kind::kView;
  if (!valid(t.peer)) return refuse(rank, t, fmt::format("no rank {} of {}", t.peer, nranks));
  if (as_view && !opt.views) return refuse(rank, t, "views are not supported: views() is null");
  if (opt.carry_data && !as_view && t.bytes > 0 && t.data == nullptr) {
    return refuse(rank, t, fmt::format("{} bytes at address null", t.bytes));
  }
  if (any_failure) {
    if (const Code code = known(rank, t.peer); code != Code::kOk) {
      return report(rank, {.id = t.id, .code = code});
    }
  }
  const Rank src = sending ? rank : t.peer;
  const Rank dst = sending ? t.peer : rank;
  std::uint32_t m = find(src, dst, t.tag, sending ? M::kRecvPosted : M::kSendPosted);
  const bool matched = m != kNone;
  if (matched) {
    remove(m);
  } else {
    m = take_message();
  }
  M& msg = messages[m];
  const std::size_t other_bytes = msg.bytes;
  const Head mine = t.head ? *t.head : Head{}, other = msg.head;
  if (sending || !matched) msg.head = mine;
  if (sending) {
    msg.set(M::kSendPosted | M::kSendOpen);
    msg.send_id = t.id;
    msg.from = t.data;
  } else {
    msg.set(M::kRecvPosted | M::kRecvOpen);
    if (as_view) msg.set(M::kAsView);
    msg.recv_id = t.id;
    msg.to = t.data;
  }
  if (!matched) {
    msg.src = src;
    msg.dst = dst;
    msg.tag = t.tag;
    msg.bytes = t.bytes;
    insert(m);
  } else if (opt.same_as.empty() && (other_bytes != t.bytes || other.sign != mine.sign)) {
    const Status why(Code::kMismatch,
                     fmt::format("tag {:#x} from rank {} to rank {}: one side has {} bytes, the "
                                 "other {}; both must post the same size",
                                 t.tag, src, dst, other_bytes, t.bytes),
                     t.peer);
    disputed[{rank, t.peer}] = other;
    disputed[{t.peer, rank}] = mine;
    refused[{src, dst}] = why;
    refused[{dst, src}] = why;
    return fail(m, Code::kMismatch);
  }
  if (sending) {
    const std::int64_t cost =
        core_ps(rank, post_ps + sim_ps(static_cast<double>(t.bytes) * send_ps_per_byte));
    if (cost > 0) {
      const std::int64_t start = cpu[cpu_of_rank[rank]].serve(now_ps, cost, t.bytes);
      watch(rank, "core", start, cost, msg);
      ++msg.events;
      schedule(Kind::kIssue, start + cost, m);
      return;
    }
    msg.set(M::kIssued);
  } else if (msg.has(M::kLanded)) {
    return arrived(m);
  }
  try_depart(m);
}

void SimFabric::State::try_depart(std::uint32_t m) {
  const M& msg = messages[m];
  if (!msg.has(M::kIssued) || msg.has(M::kDeparted | M::kLost)) return;
  if (msg.has(M::kRecvPosted) || msg.bytes < opt.eager_below) depart(m);
}

void SimFabric::State::depart(std::uint32_t m) {
  M& msg = messages[m];
  msg.set(M::kDeparted);
  if (any_failure && broken(msg.src, msg.dst)) {
    if (opt.cut_stalls && !dead[msg.src] && !dead[msg.dst]) {
      ++msg.events;
      stalled.push_back(m);
    } else {
      msg.set(M::kLost);
    }
    return;
  }
  const int src_host = opt.host_of_rank[msg.src];
  const bool local = same_host(msg.src, msg.dst);
  const bool cross = !local && nic(msg.src, msg.dst) % nrails != nic(msg.dst, msg.src) % nrails;
  if (++nmessages == opt.lose_message) return lose(m);
  if (local) {
    host_bytes += msg.bytes;
  } else {
    rail_bytes[nic(msg.src, msg.dst) % nrails] += msg.bytes;
    host_tx_bytes[src_host] += msg.bytes;
    if (cross) cross_rail_bytes += msg.bytes;
    if (changes_leaf(msg.src, msg.dst)) uplink_bytes += msg.bytes;
  }
  SimPort& tx = local ? local_tx[same_as(msg.src)] : nic_tx[nic(msg.src, msg.dst)];
  const std::int64_t ps = tx.duration_ps(msg.bytes);
  const std::int64_t start = tx.serve(now_ps, ps, msg.bytes);
  watch(msg.src, local ? "host tx" : "rail tx", start, ps, msg);
  const std::int64_t latency =
      local ? host_latency_ps : (cross ? spine_latency_ps : rail_latency_ps);
  std::int64_t head = start + latency;
  if (delay_ps_max > 0) {
    head += extra_delay();
    if (!opt.reorder) {
      std::int64_t& last = pair_tails[sim_key(msg.src, msg.dst)];
      head = std::max(head, last);
      last = std::min(head + ps, 2 * kSimEndPs);
    }
  }
  msg.tail_ps = head + ps;
  msg.events = static_cast<std::uint16_t>(msg.events + 2);
  schedule(Kind::kTxEnd, start + ps, m);
  const bool climbs = !local && !leaf_up.empty() && changes_leaf(msg.src, msg.dst);
  schedule(climbs ? Kind::kAtUplink : cross ? Kind::kAtSpine : Kind::kAtRx, head, m);
}

void SimFabric::State::lose(std::uint32_t m) {
  M& msg = messages[m];
  msg.set(M::kLost);
  const Status why(
      Code::kTransport,
      fmt::format("{} bytes from rank {} to rank {} were lost at {} us of virtual time", msg.bytes,
                  msg.src, msg.dst, static_cast<double>(now_ps) / 1e6));
  refused[{msg.src, msg.dst}] = {why.code(), why.message(), msg.dst};
  refused[{msg.dst, msg.src}] = {why.code(), why.message(), msg.src};
  ++msg.events;
  schedule(Kind::kDetectLoss, now_ps + detect_ps, m);
}

void SimFabric::State::tx_end(std::uint32_t m) {
  M& msg = messages[m];
  if (msg.has(M::kLost)) return;
  msg.set(M::kSent);
  if (opt.carry_data) take_bytes(m);
  close(m, M::kSendOpen, Code::kOk, true);
}

// Cut-through: the port forwards a message when its first byte arrives.
void SimFabric::State::pass(std::uint32_t m, SimPort& port, Kind next) {
  M& msg = messages[m];
  const std::int64_t ps = port.duration_ps(msg.bytes);
  const std::int64_t start = port.serve(now_ps, ps, msg.bytes);
  msg.tail_ps = std::max(msg.tail_ps, start + ps);
  if (start == now_ps && next == Kind::kAtRx) return at_rx(m);
  ++msg.events;
  schedule(next, start, m);
}

void SimFabric::State::at_uplink(std::uint32_t m) {
  const M& msg = messages[m];
  if (msg.has(M::kLost)) return;
  const bool cross = nic(msg.src, msg.dst) % nrails != nic(msg.dst, msg.src) % nrails;
  pass(m, leaf_up[uplink(msg.src, msg.dst)], cross ? Kind::kAtSpine : Kind::kAtDownlink);
}

void SimFabric::State::at_spine(std::uint32_t m) {
  const M& msg = messages[m];
  if (msg.has(M::kLost)) return;
  const bool falls = !leaf_down.empty() && changes_leaf(msg.src, msg.dst);
  pass(m, spine(msg.src, msg.dst), falls ? Kind::kAtDownlink : Kind::kAtRx);
}

void SimFabric::State::at_downlink(std::uint32_t m) {
  const M& msg = messages[m];
  if (msg.has(M::kLost)) return;
  pass(m, leaf_down[uplink(msg.dst, msg.src)], Kind::kAtRx);
}

void SimFabric::State::at_rx(std::uint32_t m) {
  M& msg = messages[m];
  if (msg.has(M::kLost)) return;
  const bool local = same_host(msg.src, msg.dst);
  SimPort& rx = local ? local_rx[msg.dst] : nic_rx[nic(msg.dst, msg.src)];
  const std::int64_t ps = rx.duration_ps(msg.bytes);
  const std::int64_t start = rx.serve(now_ps, ps, msg.bytes);
  watch(msg.dst, local ? "host rx" : "rail rx", start, ps, msg);
  ++msg.events;
  schedule(Kind::kLanded, std::max(msg.tail_ps, start + ps), m);
}

void SimFabric::State::arrived(std::uint32_t m) {
  M& msg = messages[m];
  if (!msg.has(M::kRecvOpen)) return;
  const bool copied = opt.rail_copies || same_host(msg.src, msg.dst);
  const double per_byte = msg.has(M::kAsView) ? reduce_ps_per_byte : copied ? copy_ps_per_byte : 0;
  const std::int64_t cost =
      core_ps(msg.dst, complete_ps + sim_ps(static_cast<double>(msg.bytes) * per_byte));
  if (cost == 0) return deliver(m);
  const std::int64_t start = cpu[cpu_of_rank[msg.dst]].serve(now_ps, cost, msg.bytes);
  watch(msg.dst, "core", start, cost, msg);
  ++msg.events;
  schedule(Kind::kDeliver, start + cost, m);
}

void SimFabric::State::deliver(std::uint32_t m) {
  M& msg = messages[m];
  if (!msg.has(M::kRecvOpen)) return;
  if (opt.carry_data && !msg.has(M::kAsView) && msg.bytes > 0) {
    std::memcpy(msg.to, buffers[msg.buffer].data(), msg.bytes);
  }
  if (msg.has(M::kAsView)) {
    msg.set(M::kLent);
    ++lent;
  }
  close(m, M::kRecvOpen, Code::kOk, true);
}

// Ends one side of a message; `report_it`: its rank gets a completion.
void SimFabric::State::close(std::uint32_t m, M::Flag side, Code code, bool report_it) {
  M& msg = messages[m];
  if (!msg.has(side)) return;
  msg.clear(side);
  const bool sending = side == M::kSendOpen;
  const Rank rank = sending ? msg.src : msg.dst;
  if (report_it) {
    Completion c{.id = sending ? msg.send_id : msg.recv_id, .code = code};
    if (!sending) c.crc = msg.head.crc;
    if (!sending && msg.has(M::kLent)) {
      c.token = std::uint64_t{msg.generation} << 32 | m;
      if (opt.carry_data) c.view = buffers[msg.buffer].data();
    }
    report(same_as(rank), c);
  }
  drop_if_over(m);
}

void SimFabric::State::fail(std::uint32_t m, Code code) {
  M& msg = messages[m];
  ++msg.events;  // holds the message while both sides are closed
  msg.set(M::kLost);
  if (msg.has(M::kWaiting)) remove(m);
  close(m, M::kSendOpen, code, true);
  close(m, M::kRecvOpen, code, true);
  --messages[m].events;
  drop_if_over(m);
}

void SimFabric::State::refuse(Rank rank, const Transfer& t, const std::string& why) {
  refused[{rank, t.peer}] = Status(Code::kInvalidArgument, why, t.peer);
  report(rank, {.id = t.id, .code = Code::kInvalidArgument});
}

void SimFabric::State::report(Rank rank, const Completion& completion) {
  if (dead[rank]) return;
  inbox[rank].add(completion);
  ++activity;
  mark_ready(rank);
}

void SimFabric::State::mark_ready(Rank rank) {
  if (in_ready[rank]) return;
  in_ready[rank] = true;
  ready.push_back(rank);
}

std::size_t SimFabric::State::poll(Rank rank, std::span<Completion> out) {
  const std::size_t n = inbox[rank].hand_out(out);
  activity += n;
  return n;
}

void SimFabric::State::release(Rank rank, std::uint64_t token) {
  if (dead[rank]) return;
  const auto m = static_cast<std::uint32_t>(token);
  if (m >= messages.size() || !messages[m].has(M::kLent) || messages[m].dst != rank ||
      messages[m].generation != token >> 32) {
    std::fprintf(stderr, "weft sim: rank %d releases token %#llx, which is not lent to it\n", rank,
                 static_cast<unsigned long long>(token));
    std::abort();
  }
  messages[m].clear(M::kLent);
  --lent;
  drop_if_over(m);
}

void SimFabric::State::cancel(Rank rank, std::uint32_t id_high, bool everything) {
  const auto given_up = [&](std::uint64_t id) { return everything || id >> 32 == id_high; };
  inbox[rank].forget_if([&](const Completion& c) {
    if (given_up(c.id) && c.token != 0) release(rank, c.token);
    return given_up(c.id);
  });
  for (std::uint32_t m = 0; m < messages.size(); ++m) {
    M& msg = messages[m];
    if (everything && msg.dst == rank && msg.has(M::kLent)) {
      msg.clear(M::kLent);
      --lent;
    }
    const bool send = msg.has(M::kSendOpen) && msg.src == rank && given_up(msg.send_id);
    const bool recv = msg.has(M::kRecvOpen) && msg.dst == rank && given_up(msg.recv_id);
    if (send || recv) {
      ++msg.events;  // as in fail()
      // Bytes that were not sent yet are discarded; bytes in flight are dropped on arrival.
      if (send) msg.set(M::kLost);
      // An eager message may have arrived already; it remains unexpected.
      if (msg.has(M::kWaiting)) remove(m);
      if (send) close(m, M::kSendOpen, Code::kAborted, false);
      if (recv) close(m, M::kRecvOpen, Code::kAborted, false);
      --msg.events;
    }
    if (msg.flags != 0) drop_if_over(m);
  }
}

SimPort& SimFabric::State::spine(Rank src, Rank dst) {
  return spines.try_emplace(sim_key(opt.host_of_rank[src], opt.host_of_rank[dst]), spine_model)
      .first->second;
}

std::int64_t SimFabric::State::extra_delay() {
  random += 0x9e3779b97f4a7c15u;
  return static_cast<std::int64_t>(sim_mix(random) % static_cast<std::uint64_t>(delay_ps_max + 1));
}

}  // namespace weft
