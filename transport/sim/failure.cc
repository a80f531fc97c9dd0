// Failures of the simulated fabric: kills ranks, cuts and restores links, fails their messages.
#include <fmt/format.h>

#include <utility>

#include "transport/sim/state.h"

namespace weft {

void SimFabric::State::kill(Rank rank) {
  if (dead[rank]) return;
  any_failure = true;
  dead[rank] = true;
  died_ps[rank] = now_ps;
  inbox[rank] = {};
  for (std::uint32_t m = 0; m < messages.size(); ++m) {
    SimMessage& msg = messages[m];
    if (msg.flags == 0 || (msg.src != rank && msg.dst != rank)) continue;
    ++msg.events;
    // Messages that had left the dead rank still arrive.
    if (msg.dst == rank || !msg.has(SimMessage::kSent)) msg.set(SimMessage::kLost);
    if (msg.dst == rank && msg.has(SimMessage::kLent)) {
      msg.clear(SimMessage::kLent);
      --lent;
    }
    const auto side = msg.src == rank ? SimMessage::kSendOpen : SimMessage::kRecvOpen;
    close(m, side, Code::kPeerFailed, false);
    if (msg.src == rank && msg.dst == rank) {
      close(m, SimMessage::kRecvOpen, Code::kPeerFailed, false);
    }
    --msg.events;
    drop_if_over(m);
  }
  schedule(SimEvent::Kind::kDetectKill, now_ps + detect_ps, static_cast<std::uint32_t>(rank));
}

void SimFabric::State::detect_kill(Rank rank) {
  dead_known[rank] = true;
  for (std::uint32_t m = 0; m < messages.size(); ++m) {
    SimMessage& msg = messages[m];
    if (msg.flags == 0 || (msg.src != rank && msg.dst != rank)) continue;
    // Messages that have arrived and wait only for the receiver's core are treated as received.
    if (msg.has(SimMessage::kLanded) && msg.has(SimMessage::kRecvOpen)) continue;
    if (msg.has(SimMessage::kLent)) continue;
    fail(m, Code::kPeerFailed);
  }
}

void SimFabric::State::cut(std::uint32_t nic_index) {
  if (down[nic_index]) return;
  any_failure = true;
  down[nic_index] = true;
  if (opt.cut_stalls) return;  // messages in flight still arrive
  for (SimMessage& msg : messages) {
    if (msg.has(SimMessage::kDeparted) && crosses(msg, nic_index) &&
        !msg.has(SimMessage::kLanded)) {
      msg.set(SimMessage::kLost);
    }
  }
  schedule(SimEvent::Kind::kDetectCut, now_ps + detect_ps, nic_index);
}

void SimFabric::State::mend(std::uint32_t nic_index) {
  down[nic_index] = false;
  down_known[nic_index] = false;
  for (const std::uint32_t m : std::exchange(stalled, {})) {
    --messages[m].events;
    if (messages[m].has(SimMessage::kLost))
      drop_if_over(m);
    else
      depart(m);  // or back to `stalled`
  }
}

void SimFabric::State::slow_down(const SimSlowdown& by) {
  for (auto* side : {&nic_tx, &nic_rx})
    for (std::size_t i = static_cast<std::size_t>(by.rail); i < side->size();
         i += static_cast<std::size_t>(nrails))
      (*side)[i].ps_per_byte /= by.factor;
}

void SimFabric::State::disconnect(Rank rank, Rank peer) {
  for (std::uint32_t m = 0; m < messages.size(); ++m) {
    SimMessage& msg = messages[m];
    const bool sends = msg.src == rank && msg.dst == peer;
    if (msg.flags == 0 || (!sends && (msg.src != peer || msg.dst != rank))) continue;
    ++msg.events;  // as in fail()
    msg.set(SimMessage::kLost);
    if (msg.has(SimMessage::kWaiting)) remove(m);
    close(m, sends ? SimMessage::kSendOpen : SimMessage::kRecvOpen, Code::kAborted, false);
    --msg.events;
    drop_if_over(m);
  }
}

void SimFabric::State::detect_cut(std::uint32_t nic_index) {
  // If the link was restored in the meantime, fail only messages that were lost.
  const bool all = down_known[nic_index] = down[nic_index];
  for (std::uint32_t m = 0; m < messages.size(); ++m) {
    const SimMessage& msg = messages[m];
    if (msg.flags != 0 && crosses(msg, nic_index) && !msg.has(SimMessage::kLanded) &&
        (all || msg.has(SimMessage::kLost))) {
      fail(m, Code::kTransport);
    }
  }
}

std::uint32_t SimFabric::State::live_nic(Rank r, Rank peer) const {
  const auto rails = static_cast<std::uint32_t>(nrails);
  const auto port = [&](Rank of, std::uint32_t rail) { return nic(of) / rails * rails + rail; };
  const bool one_rail = nic(r) % rails == nic(peer) % rails;
  for (std::uint32_t i = 0; i < rails; ++i) {
    const std::uint32_t rail = (nic(r) + i) % rails;
    if (!dead_port[port(r, rail)] && !(one_rail && dead_port[port(peer, rail)]))
      return port(r, rail);
  }
  return one_rail ? live_nic(r, r) : nic(r);  // no rail works for both hosts: each uses its own
}

bool SimFabric::State::crosses(const SimMessage& m, std::uint32_t nic_index) const {
  return !same_host(m.src, m.dst) &&
         (nic(m.src, m.dst) == nic_index || nic(m.dst, m.src) == nic_index);
}

bool SimFabric::State::broken(Rank a, Rank b) const {
  return dead[a] || dead[b] || (!same_host(a, b) && (down[nic(a, b)] || down[nic(b, a)]));
}

Code SimFabric::State::known(Rank a, Rank b) const {
  if (dead_known[a] || dead_known[b]) return Code::kPeerFailed;
  if (!same_host(a, b) && (down_known[nic(a, b)] || down_known[nic(b, a)])) return Code::kTransport;
  return Code::kOk;
}

Status SimFabric::State::cause(Rank rank, Rank peer) const {
  if (valid(peer)) {
    if (dead_known[peer]) {
      return {Code::kPeerFailed,
              fmt::format("rank {} (host {}) died at {} us of virtual time", peer,
                          opt.host_of_rank[peer], static_cast<double>(died_ps[peer]) / kPsPerUs),
              peer};
    }
    if (!same_host(rank, peer)) {
      for (const Rank end : {peer, rank}) {
        if (!down_known[nic(end, end == peer ? rank : peer)]) continue;
        return {Code::kTransport,
                fmt::format("link of host {}, rail {} (rank {}) is down", opt.host_of_rank[end],
                            opt.rail_of_rank[end], end),
                end};
      }
    }
  }
  const auto it = refused.find({rank, peer});
  return it == refused.end() ? Status() : it->second;
}

}  // namespace weft
