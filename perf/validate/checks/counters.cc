// Turns readings before and after a run into changes and findings.
#include "perf/validate/checks/counters.h"

#include <algorithm>
#include <array>
#include <string>

#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr std::string_view kSaturated = "saturated";

Reading reading(const Readings& readings, const std::string& name) {
  const auto it = readings.find(name);
  return it == readings.end() ? Reading{} : it->second;
}

// Why a change is not exact; empty: it is exact, or the counter does not exist.
std::string_view doubt_of(const Reading& before, const Reading& after, const Change& change) {
  for (const Reading* one : {&before, &after}) {
    if (one->state == ReadingState::kNotAvailable) return "n/a";
    if (one->state == ReadingState::kUnreadable) return "unreadable";
  }
  const bool was = before.state == ReadingState::kValue, is = after.state == ReadingState::kValue;
  if (was != is) return was ? "vanished" : "appeared";
  if (change.state == ChangeState::kSaturated) return kSaturated;
  if (change.state == ChangeState::kReset) return "reset";
  return "";
}

}  // namespace

Moves moves_of(const HostFacts& host, const PortFacts& port, Names names) {
  Moves moves;
  const Where where = at_port(host, port);
  for (const std::string_view name : names) {
    const std::string key(name);
    const Reading before = reading(port.before, key), after = reading(port.after, key);
    if (before.state == ReadingState::kAbsent && after.state == ReadingState::kAbsent) continue;
    ++moves.present;
    const Change change = difference(before, after, kind_of_counter(key));
    if (change.change > 0 && change.state != ChangeState::kUnknown) {
      const auto events = static_cast<double>(change.change);
      moves.events += events;
      moves.moved.push_back(number_evidence(key, where, events, 0, Unit::kCount));
    }
    if (const std::string_view why = doubt_of(before, after, change); !why.empty())
      moves.doubtful.push_back(text_evidence(key, where, std::string(why)));
  }
  return moves;
}

std::optional<double> change_of(const PortFacts& port, std::string_view name) {
  const std::string key(name);
  const Change change =
      difference(reading(port.before, key), reading(port.after, key), kind_of_counter(key));
  if (!change.exact()) return std::nullopt;
  return static_cast<double>(change.change);
}

std::optional<double> first_change(const PortFacts& port, Names names) {
  for (const std::string_view name : names)
    if (const auto change = change_of(port, name)) return change;
  return std::nullopt;
}

std::optional<double> packets_of(const PortFacts& port, Direction direction) {
  static constexpr std::string_view kSent[] = {"hw.sent_pkts", "hw.tx_pkts", "ib.port_xmit_packets",
                                               "eth.tx_packets_phy", "net.tx_packets"};
  static constexpr std::string_view kReceived[] = {
      "hw.rcvd_pkts", "hw.rx_pkts", "ib.port_rcv_packets", "eth.rx_packets_phy", "net.rx_packets"};
  const auto sent = first_change(port, kSent), received = first_change(port, kReceived);
  if (direction == Direction::kTransmit) return sent;
  if (direction == Direction::kReceive) return received;
  if (!sent || !received) return sent ? sent : received;
  return *sent + *received;
}

void set_rate(Finding& finding, double events, std::optional<double> packets, double confidence) {
  if (!packets || *packets < 1) {
    finding.unit = Unit::kCount;
    finding.value = events;
    return;
  }
  const double trials = std::max(*packets, events);
  const Interval interval = wilson(events, trials, confidence);
  finding.unit = Unit::kPerPacket;
  finding.value = events / trials;
  finding.low = interval.low;
  finding.high = interval.high;
  add_number(finding, "packets", *packets, Unit::kCount, 0);
}

std::optional<Finding> doubt(const Check& check, const Where& where, const Moves& moves,
                             bool required) {
  if (moves.doubtful.empty() && !(required && moves.present == 0)) return std::nullopt;
  Finding finding = make_unknown(check, where);
  finding.unit = Unit::kText;
  finding.text = moves.doubtful.empty() ? "missing" : moves.doubtful.front().text;
  finding.evidence = moves.doubtful;
  // A counter that saturated before the run stays saturated until cleared: a note, not a doubt.
  const bool full = std::ranges::all_of(moves.doubtful,
                                        [](const Evidence& one) { return one.text == kSaturated; });
  if (!full || moves.doubtful.empty()) return finding;
  finding.severity = Severity::kInfo;
  finding.text = moves.doubtful.front().name + " was saturated before the run";
  return finding;
}

Outcome judge_counters(const Check& check, const Observed& observed, const HostFacts& host,
                       const PortFacts& port, const Question& question) {
  const Moves moves = moves_of(host, port, question.names);
  const Where where = at_port(host, port, question.direction);
  if (moves.events > 0) {
    Finding finding = make_finding(check, where);
    finding.evidence = moves.moved;
    finding.evidence.insert(finding.evidence.end(), moves.doubtful.begin(), moves.doubtful.end());
    set_rate(finding, moves.events,
             question.per_packet ? packets_of(port, question.direction) : std::nullopt,
             observed.policy.thresholds.confidence);
    return std::vector{finding};
  }
  if (auto unknown = doubt(check, where, moves, question.required(port)))
    return std::vector{*unknown};
  if (moves.present == 0) return std::nullopt;
  return std::vector<Finding>{};
}

Judged judge_counters(const Check& check, const Observed& observed, const Question& question,
                      Asked asked) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (asked == Asked::kRdma && !port.rdma) return std::nullopt;
    return judge_counters(check, observed, host, port, question);
  });
}

}  // namespace weft::fabric
