// Chooses and runs the cases of the collectives. Does not know payloads' values.
#include "perf/validate/validate_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "coll/runtime/internals.h"
#include "coll/schedule/algorithm.h"
#include "coll/schedule/check.h"
#include "perf/cli/names.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

constexpr std::size_t kSmallCounts[] = {1, 7, 1000};
constexpr std::size_t kLargeCount = 65539;  // a prime: no chunk divides it

std::string subject_of(Collective collective, std::string_view algorithm) {
  return fmt::format("{}{}{}", name(collective), algorithm.empty() ? "" : " ", algorithm);
}

constexpr int kValidatedRanks = 64;  // larger jobs take longer to prove than to run

// Empty when the schedules of all ranks are right.
std::string prove(Collective collective, const Algorithm& algorithm, const Topology& topology) {
  if (topology.nranks() > kValidatedRanks) return "";
  std::vector<Schedule> schedules;
  for (Rank r = 0; r < topology.nranks(); ++r)
    schedules.push_back(algorithm.build(shape_of(topology, r, 0)));
  return check(collective, schedules);
}

// Runs all cases by the algorithm that is set; what this rank found.
nlohmann::json run_cases(Communicator& comm, const std::vector<Case>& cases, Memory& plain,
                         Memory& shared) {
  std::uint64_t wrong = 0;
  std::string first;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Exercise exercise(comm, cases[i], i % 2 == 0 ? plain : shared);
    exercise.prepare();
    require(exercise.run());
    const Mismatch mismatch = exercise.check();
    if (wrong == 0 && mismatch.wrong > 0)
      first = fmt::format("{} {} of {} elements{}: {}", name(cases[i].type),
                          reduces(cases[i].collective) ? name(cases[i].op) : "", cases[i].count,
                          cases[i].in_place ? " in place" : "", mismatch.first);
    wrong += mismatch.wrong;
  }
  return {{"wrong", wrong}, {"first", first}};
}

// Puts together what the ranks found; also tells whether rank 0's time is up.
Item judge(World& world, const std::string& subject, std::size_t cases, bool proved,
           nlohmann::json mine, bool& over) {
  mine["over"] = over;
  std::uint64_t wrong = 0;
  std::string first;
  const auto all = job_of(world).all_gather(mine.dump());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto theirs = nlohmann::json::parse(all[r]);
    if (r == 0) over = theirs["over"];
    const auto here = theirs["wrong"].get<std::uint64_t>();
    if (wrong == 0 && here > 0)
      first = fmt::format("rank {}, {}", r, theirs["first"].get<std::string>());
    wrong += here;
  }
  if (wrong == 0)
    return {"collectives",
            subject,
            Verdict::kPass,
            fmt::format("{:>3} {} exact{}", cases, cases == 1 ? "case" : "cases",
                        proved ? ", schedule proved" : ""),
            "",
            ""};
  return {"collectives",
          subject,
          Verdict::kFail,
          fmt::format("{} wrong elements; first: {}", wrong, first),
          "collective-wrong-result",
          "data was corrupted on the way or by memory: rerun `weft perf` on halves of the ranks to "
          "find the host, and take it out"};
}

}  // namespace

std::vector<Case> validation_cases(Collective collective, int nranks) {
  std::vector<Case> cases;
  if (collective == Collective::kBarrier) return {Case{collective}};
  const auto add = [&](DType type, RedOp op, std::size_t count) {
    Case c{collective, type, op};
    const std::size_t k = cases.size();
    c.count = count;
    // Neither follows the alternation of the buffers.
    c.in_place = collective != Collective::kSendRecv && k % 4 >= 2;
    c.root = rooted(collective) && k % 3 == 2 ? nranks - 1 : 0;
    cases.push_back(c);
  };
  for (DType type : kAllDTypes) {
    for (RedOp op : kAllRedOps) {
      if (op != RedOp::kSum && !reduces(collective)) break;
      if (!defined(op, type)) continue;
      for (std::size_t count : kSmallCounts) add(type, op, count);
    }
    add(type, RedOp::kSum, kLargeCount);
  }
  return cases;
}

std::vector<Item> validate_collectives(World& world, double budget_s,
                                       const std::function<void(const std::string&)>& show) {
  const auto start = std::chrono::steady_clock::now();
  const Topology& topology = world.topology();
  Communicator comm = world.world();
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const std::uint64_t bytes = ranks * kLargeCount * sizeof(double);
  Memory plain(bytes, false, false), shared(bytes, false, true);
  std::vector<Item> items;
  std::string left_out;
  bool over = false;
  for (Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter,
        Collective::kAllToAll, Collective::kBarrier, Collective::kSendRecv}) {
    if (collective == Collective::kSendRecv && world.size() < 2) continue;
    const auto cases = validation_cases(collective, world.size());
    std::vector<const Algorithm*> ways;
    for (const Algorithm& a : algorithms())
      if (a.collective == collective && a.applies(shape_of(topology, world.rank(), 0)))
        ways.push_back(&a);
    if (ways.empty()) ways.push_back(nullptr);  // nothing to choose from
    for (const Algorithm* way : ways) {
      const std::string subject = subject_of(collective, way ? way->name : "");
      if (over) {
        left_out += fmt::format("{}{}", left_out.empty() ? "" : ", ", subject);
        continue;
      }
      show(subject);
      if (way != nullptr) {
        if (const std::string fault = prove(collective, *way, topology); !fault.empty()) {
          items.push_back({"collectives", subject, Verdict::kFail, fault, "schedule-unproved",
                           "a bug in weft: report it with the output of `weft explain`"});
          continue;
        }
        comm.set_algorithm(collective, way->name);
      }
      const auto mine = run_cases(comm, cases, plain, shared);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      over = spent.count() > budget_s;
      const bool proved = way != nullptr && world.size() <= kValidatedRanks;
      items.push_back(judge(world, subject, cases.size(), proved, mine, over));
    }
  }
  if (!left_out.empty())
    items.push_back({"collectives", "the rest", Verdict::kUnknown,
                     fmt::format("not run before the time was up: {}", left_out),
                     "collective-not-run", "rerun with a larger --budget-s"});
  return items;
}

}  // namespace weft
