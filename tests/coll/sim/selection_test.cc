// `auto` against every fixed algorithm, in simulation, over a grid of jobs and sizes.
//
// The whole grid takes some minutes, and resumes after an interruption:
//   export WEFT_SELECTION_GRID=grid.txt
//   build/release/tests/coll_sim_tests --gtest_filter=Selection.OverTheWholeGrid
// A line of the file is a cell: collective, hosts, ranks per host, bytes; the choice of `auto` and
// its time, the best algorithm and its time, the bound (us).
// labels: sim
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coll/machine.h"
#include "coll/schedules.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"

namespace weft::selection {
namespace {

constexpr double kNear = 1.05;

struct Cell {
  Collective collective;
  int hosts, per_host;
  std::size_t bytes;
  std::string words() const {
    return fmt::format("{} {} {} {}", name(collective), hosts, per_host, bytes);
  }
};

std::vector<Cell> grid() {
  std::vector<int> hosts;
  for (int h = 2; h <= 17; ++h) hosts.push_back(h);
  hosts.insert(hosts.end(), {31, 32, 33, 65, 100, 127, 128});
  std::vector<Cell> all;
  for (const Collective c :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kAllToAll, Collective::kBroadcast, Collective::kReduce, Collective::kGather,
        Collective::kScatter})
    for (const int h : hosts)
      for (const int p : {1, 4, 8})
        for (const std::size_t bytes :
             {std::size_t{8}, std::size_t{256}, std::size_t{8} << 10, std::size_t{256} << 10,
              std::size_t{8} << 20, std::size_t{256} << 20, std::size_t{1} << 30})
          all.push_back({c, h, p, bytes});
  return all;
}

// The machine of the grid: rails of 400 Gb/s and 5 us, cores of 0.3 us a message.
Machine machine() {
  Machine m = machine_named("h100");
  m.rail.gbps = 400;
  m.rail.us = 5;
  m.host.gbps = 3600;
  m.host.us = 1;
  m.core_us = 0.3;
  return m;
}

class Job {
 public:
  explicit Job(const Cell& cell)
      : cell_(cell),
        shape_(testing::uniform(cell.hosts, cell.per_host)),
        fabric_(fabric_of(shape_, 0, machine())),
        model_(model_of(fabric_)) {
    const std::size_t blocks =
        by_blocks(cell.collective) ? static_cast<std::size_t>(shape_.nranks) : 1;
    count_ = std::max<std::size_t>(1, cell.bytes / 4 / blocks);
    bytes_ = count_ * 4 * blocks;
  }
  double bound_us() const { return bound_of(cell_.collective, shape_, bytes_, model_).us; }
  double messages(const Algorithm& a) const {
    return shape_.nranks * messages_of(a, shape_, bytes_, model_).all();
  }
  double time_us(const Algorithm& a) const {
    if (const auto one = one_host_of(a, shape_, count_, DType::kFloat32, fabric_))
      return simulate_one_host(a, shape_, count_, DType::kFloat32, fabric_, *one).time_us;
    return simulate(a, shape_, count_, DType::kFloat32, fabric_).time_us;
  }

  struct Result {
    const Algorithm *picked, *best;
    double picked_us, best_us;
  };
  // Simulates the choice of `auto`, and each algorithm that may be faster according to the lower
  // bound of its bytes and messages.
  Result run() const {
    std::vector<Rated> all = rate(cell_.collective, shape_, bytes_, model_);
    Result r;
    r.picked = r.best = pick(all, shape_, bytes_, model_).algorithm;
    r.picked_us = r.best_us = time_us(*r.picked);
    std::ranges::stable_sort(all, {}, [](const Rated& a) { return a.prediction.time_us; });
    for (const Rated& a : all) {
      if (a.algorithm == r.picked ||
          kNear * floor_us(*a.algorithm, shape_, bytes_, model_) > r.picked_us ||
          kNear * bound_us() > r.picked_us)
        continue;
      if (const double us = time_us(*a.algorithm); us < r.best_us)
        r.best = a.algorithm, r.best_us = us;
    }
    return r;
  }

 private:
  const Cell cell_;
  const Shape shape_;
  const SimFabricOptions fabric_;
  const CostModel model_;
  std::size_t count_ = 0, bytes_ = 0;
};

// Random cells among those that take well under a second.
TEST(Selection, IsNearTheBestOnASampleOfTheGrid) {
  constexpr std::size_t kCells = 24;
  constexpr double kMessages = 40'000;
  std::vector<Cell> cells = grid();
  std::mt19937 random(20261127);
  std::ranges::shuffle(cells, random);
  std::size_t seen = 0;
  for (const Cell& cell : cells) {
    if (rooted(cell.collective) || cell.hosts * cell.per_host > 136) continue;
    const Job job(cell);
    double messages = 0;
    for (const Algorithm& a : algorithms())
      if (a.collective == cell.collective) messages = std::max(messages, job.messages(a));
    if (messages > kMessages) continue;
    const Job::Result r = job.run();
    EXPECT_LE(r.picked_us, kNear * r.best_us)
        << cell.words() << ": auto takes " << r.picked->name << ", best is " << r.best->name;
    if (++seen == kCells) break;
  }
  EXPECT_EQ(seen, kCells);
}

TEST(Selection, OverTheWholeGrid) {
  const char* path = std::getenv("WEFT_SELECTION_GRID");
  if (path == nullptr) GTEST_SKIP() << "WEFT_SELECTION_GRID names the file of results";
  std::set<std::string> done;
  std::ifstream before(path);
  for (std::string line; std::getline(before, line);)
    if (std::ranges::count(line, ' ') >= 8) done.insert(line.substr(0, line.find(" auto ")));
  std::ofstream file(path, std::ios::app);
  std::vector<Cell> cells = grid();  // those that take the longest come last
  std::ranges::stable_sort(cells, {}, [](const Cell& c) { return c.hosts * c.per_host; });
  for (const Cell& cell : cells) {
    if (done.contains(cell.words())) continue;
    const Job job(cell);
    const Job::Result r = job.run();
    fmt::print(file, "{} auto {} {:.2f} best {} {:.2f} bound {:.2f}\n", cell.words(),
               r.picked->name, r.picked_us, r.best->name, r.best_us, job.bound_us());
    file.flush();
    EXPECT_LE(r.picked_us, kNear * r.best_us) << cell.words();
  }
}

}  // namespace
}  // namespace weft::selection
