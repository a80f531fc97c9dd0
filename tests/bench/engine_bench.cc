// Measures the engine's own cost per step of a schedule: looking up the step, posting it, and
// finding the steps it enables. The transport completes every transfer at once and moves no bytes.
#include <benchmark/benchmark.h>

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/schedule/algorithm.h"
#include "topo/base/status.h"

namespace weft {
namespace {

class NullTransport final : public Transport, private Views {
 public:
  void post(std::span<const Transfer> transfers) noexcept override {
    for (const Transfer& t : transfers) ended_.push_back({.id = t.id});
  }
  std::size_t poll(std::span<Completion> out) noexcept override {
    const std::size_t n = std::min(out.size(), ended_.size() - next_);
    std::copy_n(ended_.begin() + static_cast<std::ptrdiff_t>(next_), n, out.begin());
    next_ += n;
    if (next_ == ended_.size()) {
      ended_.clear();
      next_ = 0;
    }
    return n;
  }
  void cancel(std::uint32_t) noexcept override {}
  Caps caps() const override { return {.name = "null", .phantom = true}; }
  Status cause(Rank) const override { return {}; }
  Views* views() noexcept override { return this; }

 private:
  bool release(std::uint64_t) noexcept override { return true; }
  std::vector<Completion> ended_;
  std::size_t next_ = 0;
};

// One rank of an all_reduce over 64 ranks (8 hosts of 8 for the hierarchical ones), 16 rounds.
void steps_of(benchmark::State& state, const char* algorithm_name) {
  constexpr int kRanks = 64, kPerHost = 8;
  constexpr std::size_t kRounds = 16;
  Shape shape;
  shape.nranks = kRanks;
  shape.rank = 5;
  for (Rank r = 0; r < kRanks; ++r) {
    if (r % kPerHost == 0) shape.hosts.emplace_back();
    shape.hosts.back().push_back(r);
  }
  const Algorithm* algorithm = find_algorithm(Collective::kAllReduce, algorithm_name);
  if (algorithm == nullptr) return state.SkipWithError("no such algorithm");
  const Schedule schedule = algorithm->build(shape);
  std::vector<Rank> world(kRanks);
  std::iota(world.begin(), world.end(), 0);
  const Link links[] = {{.views = true}};
  const PlanRequest request{.collective = Collective::kAllReduce,
                            .world = world,
                            .links = links,
                            .link_of = [](Rank, int) { return 0; }};
  const Plan plan = compile(schedule, request, false);

  NullTransport transport;
  const std::array<Transport*, 1> transports = {&transport};
  const Slicing slicing{.slice_bytes = 64 << 10, .rounds_in_flight = 4};
  Call call{.count = kRounds * static_cast<std::size_t>(schedule.nchunks) * (16 << 10),
            .id_high = 1};
  Run run;
  std::array<Completion, 64> batch;
  for (auto _ : state) {
    run.start(plan, call, slicing, transports);
    while (!run.done()) {
      const std::size_t n = transport.poll(batch);
      for (std::size_t i = 0; i < n; ++i) run.complete(batch[i]);
      run.progress();
    }
  }
  if (run.rounds() != kRounds) return state.SkipWithError("not the number of rounds wanted");
  const auto steps = static_cast<std::int64_t>(schedule.steps.size() * kRounds);
  state.SetItemsProcessed(state.iterations() * steps);
  state.counters["per_step"] =
      benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(steps_of, direct, "direct");
BENCHMARK_CAPTURE(steps_of, ring, "ring");
BENCHMARK_CAPTURE(steps_of, halving_doubling, "halving_doubling");
BENCHMARK_CAPTURE(steps_of, hierarchical, "hierarchical");

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
