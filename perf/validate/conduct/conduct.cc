// Plans, measures, locates and tests again.
#include "perf/validate/conduct/conduct.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "perf/validate/conduct/next_round.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/intermittent.h"
#include "perf/validate/locate/locate.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/power.h"
#include "perf/validate/locate/suspects.h"

namespace weft::fabric {
namespace {

constexpr double kPlanShare = 0.65;   // fraction of the budget for the planned rounds
constexpr double kLatestPlan = 0.75;  // planned rounds that would end later are left out
constexpr double kLatestRound = 0.9;  // leaves time for reports
constexpr int kMostFurtherRounds = 150;
constexpr int kFirstLabel = 100;  // first label of kRate flows; kEntropy uses smaller labels

class Conductor {
 public:
  Conductor(Fabric& fabric, const PlanOptions& options, const Thresholds& thresholds,
            const EachMinute& each_minute)
      : fabric_(fabric),
        options_(options),
        thresholds_(thresholds),
        each_minute_(each_minute),
        start_s_(fabric.now_s()) {}

  Conducted run() {
    PlanOptions planned = options_;
    planned.budget_s = kPlanShare * options_.budget_s;
    done_.plan = plan_rounds(fabric_.hosts(), fabric_.most_flows(), planned);
    measure_plan();
    locate_and_test();
    measure_left_out();
    done_.samples.seconds = fabric_.now_s() - start_s_;
    done_.samples.false_reports = fabric_.false_reports();
    settle_plan();
    return std::move(done_);
  }

 private:
  bool fits(const Round& round, double share) const {
    const double end_s = start_s_ + share * options_.budget_s + options_.soak_s;
    return fabric_.now_s() + round.seconds + overhead_s_ <= end_s;
  }
  void measure(Round round);
  void measure_plan() {
    for (const Round& round : done_.plan.rounds)
      if (fabric_.supports(round.probe) && fits(round, kLatestPlan)) {
        measure(round);
        tell_minute();
      }
  }
  void tell_minute();
  void measure_left_out();
  void locate_and_test();
  std::optional<Round> next() const;
  void settle_plan();

  Fabric& fabric_;
  const PlanOptions& options_;
  const Thresholds& thresholds_;
  const EachMinute& each_minute_;
  double start_s_;
  int minutes_ = 0;        // reported
  double overhead_s_ = 0;  // longest overhead of recent rounds
  int label_ = kFirstLabel;
  Conducted done_;
};

// Gives each unlabeled kRate flow a new label, and so its own source port.
void Conductor::measure(Round round) {
  const double before_s = fabric_.now_s();
  round.at_s = before_s - start_s_;
  for (Flow& flow : round.flows)
    if (round.probe == Probe::kRate && flow.label == 0) flow.label = label_++;
  std::vector<FlowSample> samples = fabric_.run(round);
  overhead_s_ = std::max(0.7 * overhead_s_, fabric_.now_s() - before_s - round.seconds);
  const int index = static_cast<int>(done_.samples.rounds.size());
  done_.samples.rounds.push_back(std::move(round));
  for (FlowSample& sample : samples) {
    sample.round = index;
    done_.samples.flows.push_back(std::move(sample));
  }
}

// Does not sample victims of a slow receiver again, except on paths without another sample.
std::optional<Round> Conductor::next() const {
  const auto next_of = [&](const Samples& samples) {
    return next_round(fabric_.hosts(), samples, done_.causes, thresholds_, fabric_.most_flows());
  };
  const std::vector<Spread> spreads =
      find_spreads(fabric_.hosts(), done_.samples, done_.causes, thresholds_);
  if (spreads.empty()) return next_of(done_.samples);
  const Samples rest = without_victims(fabric_.hosts(), done_.samples, spreads, thresholds_);
  std::set<std::pair<Port, Port>> received;
  for (const FlowSample& sample : rest.flows)
    if (rest.rounds[static_cast<std::size_t>(sample.round)].probe == Probe::kRate)
      received.insert({sample.flow.from, sample.flow.to});
  Round round{Probe::kRate, {}, kLook_s};
  std::set<Port> busy;
  for (const Spread& spread : spreads) busy.insert(spread.receiver);
  for (const FlowSample& sample : done_.samples.flows) {
    const Port from = sample.flow.from, to = sample.flow.to;
    const int most = fabric_.most_flows(), flows = static_cast<int>(round.flows.size());
    if (done_.samples.probe_of(sample) != Probe::kRate) continue;
    if (received.contains({from, to}) || busy.contains(from) || busy.contains(to)) continue;
    if (most > 0 && flows >= most) break;
    busy.insert({from, to});
    round.flows.push_back({from, to});
  }
  if (!round.flows.empty()) return round;
  return next_of(rest);
}

void Conductor::tell_minute() {
  const double seconds = fabric_.now_s() - start_s_;
  if (!each_minute_ || options_.soak_s <= 0 || seconds < 60 * (minutes_ + 1)) return;
  minutes_ = static_cast<int>(seconds / 60);
  done_.causes = locate(fabric_.hosts(), done_.samples, thresholds_);
  each_minute_(done_, seconds);
}

void Conductor::locate_and_test() {
  const std::vector<FleetHost>& hosts = fabric_.hosts();
  done_.causes = locate(hosts, done_.samples, thresholds_);
  while (done_.further_rounds < kMostFurtherRounds) {
    const std::optional<Round> round = next();
    if (!round || !fits(*round, kLatestRound)) return;
    measure(*round);
    ++done_.further_rounds;
    done_.causes = locate(hosts, done_.samples, thresholds_);
  }
}

// Spends remaining time on probes that the plan had left out.
void Conductor::measure_left_out() {
  PlanOptions rest = options_;
  rest.only = done_.plan.left_out;
  rest.soak_s = 0;
  rest.budget_s = start_s_ + kLatestRound * options_.budget_s + options_.soak_s - fabric_.now_s();
  if (rest.only.empty() || rest.budget_s <= 0) return;
  const Plan plan = plan_rounds(fabric_.hosts(), fabric_.most_flows(), rest);
  for (const Round& round : plan.rounds)
    if (fabric_.supports(round.probe) && fits(round, kLatestRound)) measure(round);
  if (plan.rounds.empty()) return;
  done_.plan.left_out = plan.left_out;
  done_.plan.rounds.insert(done_.plan.rounds.end(), plan.rounds.begin(), plan.rounds.end());
  locate_and_test();
}

// Updates the plan's summary with the actual measurements.
void Conductor::settle_plan() {
  std::set<Probe> planned, ran;
  std::set<std::tuple<int, int, int>> paths;
  std::map<std::pair<Port, bool>, double> packets;  // true: sent
  std::set<Probe> tells_loss{Probe::kLowLoad};
  const std::vector<Observation> full = loss_observations(fabric_.hosts(), done_.samples, true);
  if (clean_at_full_speed(shape_of(fabric_.hosts()), full, thresholds_))
    tells_loss.insert(Probe::kRate);
  for (const Round& round : done_.plan.rounds) planned.insert(round.probe);
  for (const Round& round : done_.samples.rounds) ran.insert(round.probe);
  for (const Probe probe : planned)
    if (!ran.contains(probe))
      (fabric_.supports(probe) ? done_.plan.left_out : done_.plan.not_here).push_back(probe);
  for (const FlowSample& sample : done_.samples.flows) {
    const auto probe = done_.samples.probe_of(sample);
    if (probe == Probe::kRate && sample.flow.from.rail == sample.flow.to.rail)
      paths.insert({sample.flow.from.rail, sample.flow.from.host, sample.flow.to.host});
    if (!probe || !tells_loss.contains(*probe)) continue;
    if (probe == Probe::kRate && outruns(fabric_.hosts(), sample.flow)) continue;
    const auto sent = static_cast<double>(sample.packets.value_or(0));
    packets[{sample.flow.from, true}] += sent;
    packets[{sample.flow.to, false}] += sent;
  }
  done_.plan.smallest_share = smallest_share(fabric_.hosts(), done_.samples, thresholds_);
  done_.plan.smallest_rate_cut = smallest_rate_cut(fabric_.hosts(), done_.samples, thresholds_);
  std::ranges::fill(done_.plan.measured_paths, 0);
  for (const auto& [rail, from, to] : paths)
    ++done_.plan.measured_paths[static_cast<std::size_t>(rail)];
  double least = packets.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [port, count] : packets) least = std::min(least, count);
  const std::size_t flows = full.size();
  done_.plan.smallest_loss = least_share(shape_of(fabric_.hosts()), flows, least,
                                         {.threshold = thresholds_.fail_loss,
                                          .background = background_loss(thresholds_),
                                          .confidence = thresholds_.confidence});
}

}  // namespace

Conducted conduct(Fabric& fabric, const PlanOptions& options, const Thresholds& thresholds,
                  const EachMinute& each_minute) {
  return Conductor(fabric, options, thresholds, each_minute).run();
}

}  // namespace weft::fabric
