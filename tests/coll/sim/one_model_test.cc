// The cost model against the simulator on one machine: the prediction of `explain` equals the time
// of `sim`.
// labels: sim
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "coll/machine.h"
#include "coll/schedule/rail_contract.h"
#include "coll/schedules.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"

namespace weft::one_model {
namespace {

using testing::uniform;

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;

struct Point {
  const char* machine;
  Collective collective;
  int hosts, per_host;
  std::size_t bytes;
};

std::string in_words(const Point& p) {
  return fmt::format("{} {} {}x{} {}K", p.machine, name(p.collective), p.hosts, p.per_host,
                     p.bytes / kKiB);
}

// Predicted and simulated times of a point's algorithms.
class Job {
 public:
  explicit Job(const Point& p)
      : point_(p),
        shape_(uniform(p.hosts, p.per_host)),
        fabric_(fabric_of(shape_, 0, machine_named(p.machine))),
        model_(model_of(fabric_)),
        count_(p.bytes / 4 /
               (by_blocks(p.collective) ? static_cast<std::size_t>(shape_.nranks) : 1)),
        pick_(pick(p.collective, shape_, p.bytes, model_)) {}

  const Pick& picked() const { return pick_; }
  double bound_us() const { return bound_of(point_.collective, shape_, point_.bytes, model_).us; }
  SimResult simulated(const Algorithm& a) const {
    if (const auto one = one_host_of(a, shape_, count_, DType::kFloat32, fabric_))
      return simulate_one_host(a, shape_, count_, DType::kFloat32, fabric_, *one);
    return simulate(a, shape_, count_, DType::kFloat32, fabric_);
  }
  // Whether simulating an algorithm takes about a second.
  bool is_quick(const Algorithm& a) const {
    constexpr double kMessages = 500'000;
    return shape_.nranks * messages_of(a, shape_, point_.bytes, model_).all() < kMessages ||
           one_host_of(a, shape_, count_, DType::kFloat32, fabric_).has_value();
  }

 private:
  const Point point_;
  const Shape shape_;
  const SimFabricOptions fabric_;
  const CostModel model_;
  const std::size_t count_;
  const Pick pick_;
};

constexpr double kNear = 0.10;  // of the simulated time, and of the runner-up's

// Adds the errors at a point to `misses`: "time" if the prediction of the pick differs from the
// simulation, "pick" if the runner-up is faster.
void look_at(const Point& p, std::set<std::string>& misses, bool rivals) {
  const Job job(p);
  const Algorithm& picked = *job.picked().algorithm;
  const SimResult r = job.simulated(picked);
  const double predicted = job.picked().prediction.time_us;
  const std::string where = in_words(p);
  if (std::getenv("WEFT_ONE_MODEL") != nullptr)
    fmt::print("{} {} predicted {:.1f} simulated {:.1f} ratio {:.3f} of_bound {:.3f}\n", where,
               picked.name, predicted, r.time_us, predicted / r.time_us,
               job.bound_us() / r.time_us);
  constexpr double kRounding = 1 + 1e-9;
  EXPECT_LE(job.bound_us(), kRounding * r.time_us) << where << ": " << picked.name;
  if (std::abs(predicted / r.time_us - 1) > kNear) misses.insert(where + " time");
  const Algorithm* other = job.picked().runner_up;
  if (!rivals || other == nullptr || !job.is_quick(*other)) return;
  const double us = job.simulated(*other).time_us;
  if (r.time_us > (1 + kNear) * us) misses.insert(where + " pick");
}

// `known` lists points at which the model is wrong. The test also fails if a listed point is right,
// so that it gets removed.
void expect_misses(const std::vector<Point>& points, const std::set<std::string>& known,
                   bool rivals) {
  std::set<std::string> misses;
  for (const Point& p : points) look_at(p, misses, rivals);
  EXPECT_EQ(misses, known);
}

constexpr Collective kAllReduce = Collective::kAllReduce;

// Slow and dead ports on one host or several, known to the schedules: predictions match the
// simulation within 10 % (12 % if all ports of a host are slow and rounds are few), and the other
// halving algorithm is not faster by more than that.
TEST(OneModel, PredictsSlowPorts) {
  struct Degraded {
    int hosts, per_host;
    std::size_t bytes;
    std::vector<SlowPort> ports;
  };
  const Degraded all[] = {
      {4, 2, 64 * kMiB, {{1, 0, 0.5}}},
      {6, 4, 64 * kMiB, {{5, 2, 0.25}}},
      {8, 8, 256 * kMiB, {{3, 1, 0.5}}},
      {8, 8, 64 * kMiB, {{0, 7, 0}}},
      {11, 4, 256 * kMiB, {{2, 0, 0.5}, {9, 3, 0.5}}},
      {16, 8, 256 * kMiB, {{3, 1, 0}}},
      {16, 4, 64 * kMiB, {{0, 0, 0.5}, {0, 1, 0.5}, {0, 2, 0.5}, {0, 3, 0.5}}},
      {20, 4, 256 * kMiB, {{4, 1, 0.7}, {7, 1, 0.4}, {8, 2, 0}}},
      {32, 8, kGiB, {{3, 1, 0.5}}},
  };
  for (const Degraded& d : all) {
    Shape shape = uniform(d.hosts, d.per_host);
    SimFabricOptions fabric = fabric_of(shape, 0, machine_named("h100"));
    shape.slow_ports = d.ports;
    for (const SlowPort& p : d.ports) fabric.slow_ports.push_back({p.host, p.local, p.rate});
    const CostModel model = model_of(fabric);
    const Pick picked = pick(kAllReduce, shape, d.bytes, model);
    const std::string where = fmt::format("{} x {}, {} slow, {}M: {}", d.hosts, d.per_host,
                                          d.ports.size(), d.bytes / kMiB, picked.algorithm->name);
    const auto us = [&](const Algorithm& a) {
      return simulate_few_rounds(a, shape, d.bytes / 4, DType::kFloat32, fabric).time_us;
    };
    const double simulated = us(*picked.algorithm);
    if (std::getenv("WEFT_ONE_MODEL") != nullptr)
      fmt::print("{} predicted {:.1f} simulated {:.1f} bound {:.1f}\n", where,
                 picked.prediction.time_us, simulated,
                 bound_of(kAllReduce, shape, d.bytes, model).us);
    EXPECT_LE(bound_of(kAllReduce, shape, d.bytes, model).us, simulated) << where;
    const bool whole_host = std::ssize(d.ports) == d.per_host;
    EXPECT_NEAR(picked.prediction.time_us / simulated, 1, whole_host ? 0.12 : kNear) << where;
    for (const char* name : {"hierarchical_hd", "hierarchical_hd4"})
      EXPECT_LE(simulated, (1 + kNear) * us(*find_algorithm(kAllReduce, name))) << where << name;
  }
}

// docs/performance.md, "Predicted performance".
TEST(OneModel, PredictsTheTableOfPerformance) {
  std::vector<Point> points;
  for (const int hosts : {4, 8, 12, 32})
    for (const std::size_t bytes : {kGiB, 64 * kMiB, 16 * kMiB})
      points.push_back({"h100", kAllReduce, hosts, 8, bytes});
  for (const int hosts : {128, 1024})
    for (const std::size_t bytes : {kGiB, 64 * kMiB})
      points.push_back({"h100", kAllReduce, hosts, 8, bytes});
  for (const Collective c :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll})
    points.push_back({"h100", c, 32, 8, kGiB});
  points.push_back({"h100", kAllReduce, 32, 1, 256 * kMiB});
  expect_misses(points, {}, false);
}

// The defaults of explain and sim, and a machine limited by its cores.
TEST(OneModel, PredictsTheDefaultsAndCores) {
  std::vector<Point> points;
  for (const Collective c : {kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                             Collective::kBroadcast, Collective::kAllToAll})
    for (const std::size_t bytes : {kMiB, 64 * kMiB})
      points.push_back({kDefaultMachine, c, 1, 8, bytes});
  points.push_back({kDefaultMachine, kAllReduce, 8, 8, 16 * kMiB});
  for (const auto& [hosts, per_host] : {std::pair{1, 8}, {2, 4}, {2, 8}, {4, 8}, {8, 8}})
    for (const std::size_t bytes : {64 * kKiB, kMiB, 16 * kMiB})
      points.push_back({"cpu", kAllReduce, hosts, per_host, bytes});
  points.push_back({"cpu", kAllReduce, 1, 8, 64 * kMiB});
  for (const Collective c : {Collective::kBroadcast, Collective::kReduce, Collective::kAllGather,
                             Collective::kReduceScatter, Collective::kAllToAll, Collective::kGather,
                             Collective::kScatter})
    for (const char* machine : {"cpu", "h100"}) points.push_back({machine, c, 2, 4, 16 * kMiB});
  expect_misses(points, {"cpu all_reduce 2x4 16384K time"}, true);
}

// Numbers of hosts that are not powers of two.
TEST(OneModel, PredictsOddNumbersOfHosts) {
  std::vector<Point> points;
  for (const int hosts : {3, 5, 13, 33, 65, 100, 127})
    for (const int per_host : {1, 4, 8})
      for (const std::size_t bytes : {kMiB, 64 * kMiB})
        points.push_back({"h100", kAllReduce, hosts, per_host, bytes});
  expect_misses(points, {"h100 all_reduce 127x4 65536K time"}, true);
}

// From 1 MiB on, algorithms stay on their rails unless leaving saves more than 10 %.
TEST(OneModel, LargeMessagesKeepToTheirRails) {
  int kept = 0;
  for (const char* machine : {"cpu", "h100"})
    for (const int hosts : {2, 4, 8})
      for (const Collective c : {kAllReduce, Collective::kAllToAll, Collective::kAllGather})
        for (const std::size_t bytes : {64 * kKiB, kMiB, 16 * kMiB}) {
          Shape shape = uniform(hosts, 8);
          const SimFabricOptions fabric = fabric_of(shape, 0, machine_named(machine));
          const CostModel model = model_of(fabric);
          const Pick picked = pick(c, shape, bytes, model);
          Shape with_rails = shape;  // otherwise all ranks are on one rail
          with_rails.rail = fabric.rail_of_rank;
          const auto leaves = [&](const Algorithm& a) {
            return find_breach(a, with_rails).has_value();
          };
          double best_us = 0, best_on_rails_us = 0;
          bool best_leaves = false;
          for (const Rated& r : rate(c, shape, bytes, model)) {
            const double us = r.prediction.time_us;
            const bool left = leaves(*r.algorithm);
            if (best_us == 0 || us < best_us) best_us = us, best_leaves = left;
            if (!left && (best_on_rails_us == 0 || us < best_on_rails_us)) best_on_rails_us = us;
          }
          if (bytes < kMiB || !best_leaves) continue;
          kept += !leaves(*picked.algorithm);
          EXPECT_EQ(leaves(*picked.algorithm), best_on_rails_us > 1.05 * best_us)
              << machine << " " << name(c) << " " << hosts << " x 8, " << bytes << ": "
              << picked.algorithm->name;
        }
  EXPECT_GT(kept, 0);
}

}  // namespace
}  // namespace weft::one_model
