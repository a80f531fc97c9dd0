// Advances the virtual time of the simulated fabric and dispatches each event to its handler.
#include <fmt/format.h>

#include "topo/base/status.h"
#include "transport/sim/state.h"

namespace weft {

using Kind = SimEvent::Kind;

void SimFabric::State::schedule(Kind kind, std::int64_t at_ps, std::uint32_t subject) {
  events.push({at_ps, next_order++, subject, kind});
}

bool SimFabric::State::advance() {
  if (events.empty()) return false;
  if (events.top().at_ps >= kSimEndPs) {
    throw Error(
        fmt::format("simulated fabric: it takes longer than {:.2g} us of virtual time: give faster "
                    "links, shorter latencies or fewer bytes",
                    static_cast<double>(kSimEndPs) / kPsPerUs));
  }
  now_ps = events.top().at_ps;
  while (!events.empty() && events.top().at_ps == now_ps) {
    const SimEvent event = events.top();
    events.pop();
    handle(event);
  }
  return true;
}

void SimFabric::State::handle(const SimEvent& event) {
  ++events_done;
  const std::uint32_t m = event.subject;
  std::uint64_t what = static_cast<std::uint64_t>(event.kind);
  if (event.kind <= Kind::kDetectLoss) {
    --messages[m].events;
    what ^= sim_mix(sim_key(messages[m].src, messages[m].dst)) ^ messages[m].tag << 8;
  } else {
    what ^= std::uint64_t{m} << 8;
  }
  trace = sim_mix(trace ^ what) + static_cast<std::uint64_t>(event.at_ps);
  switch (event.kind) {
    case Kind::kIssue:
      messages[m].set(SimMessage::kIssued);
      try_depart(m);
      break;
    case Kind::kTxEnd:
      tx_end(m);
      break;
    case Kind::kAtUplink:
      at_uplink(m);
      break;
    case Kind::kAtDownlink:
      at_downlink(m);
      break;
    case Kind::kAtSpine:
      at_spine(m);
      break;
    case Kind::kAtRx:
      at_rx(m);
      break;
    case Kind::kLanded:
      if (!messages[m].has(SimMessage::kLost)) {
        messages[m].set(SimMessage::kLanded);
        arrived(m);
      }
      break;
    case Kind::kDeliver:
      deliver(m);
      break;
    case Kind::kDetectLoss:
      fail(m, Code::kTransport);
      break;
    case Kind::kWake:
      if (dead[m]) break;
      woken[m] = true;
      mark_ready(static_cast<Rank>(m));
      break;
    case Kind::kKill:
      kill(static_cast<Rank>(m));
      break;
    case Kind::kDetectKill:
      detect_kill(static_cast<Rank>(m));
      break;
    case Kind::kCut:
      cut(m);
      break;
    case Kind::kDetectCut:
      detect_cut(m);
      break;
    case Kind::kSlow:
      slow_down(opt.slowdowns[m]);
      break;
  }
  if (event.kind <= Kind::kDetectLoss && messages[m].flags != 0) drop_if_over(m);
}

}  // namespace weft
