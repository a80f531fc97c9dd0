// Picks algorithms by the profile and the cost model, and caches their plans.
#include "coll/runtime/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "coll/engine/signature.h"
#include "coll/footprint.h"
#include "coll/runtime/arguments.h"
#include "coll/schedule/rail_contract.h"
#include "topo/base/log.h"

namespace weft {
namespace {

// The communicator's shape for the cost model and the profile.
Shape shape_of(const GroupState& g) {
  Shape shape = g.shape;
  if (g.one_machine) shape.hosts.clear();
  return shape;
}

// The candidates for messages of that size, ranked by the cost model and the profile.
const std::vector<Candidate>& candidates_of(GroupState& g, const PickKey& key, Rank root) {
  std::vector<Candidate>& all = g.cache->candidates[{key, root}];
  if (!all.empty()) return all;
  Shape shape = shape_of(g);
  shape.root = root;
  all = candidates(key.collective, shape, std::size_t{1} << key.size_class, g.core->costs,
                   g.core->profile);
  // The model treats ranks that share memory as one host; schedules are built for the actual hosts.
  std::erase_if(all, [&](const Candidate& c) { return !c.algorithm->applies(g.shape); });
  g.core->telemetry->picked(g, key.collective, key.size_class, all);
  const auto told = [&](std::size_t i) {
    if (i >= all.size()) return std::string("nothing");
    const Candidate& c = all[i];
    return c.measured_us > 0
               ? fmt::format("{} ({:.1f} us, measured)", c.algorithm->name, c.measured_us)
               : fmt::format("{} ({:.1f} us)", c.algorithm->name, c.prediction.time_us);
  };
  log().debug("weft: {} of up to {} bytes on {} ranks: {}, then {}", name(key.collective),
              std::size_t{1} << key.size_class, g.ranks.size(), told(0), told(1));
  return all;
}

// Messages up to this size are always faster on a board.
constexpr std::size_t kBoardAlways = 1 << 10;

// The weight in the profile, in calls, of a time passed to learn().
constexpr std::uint64_t kLearntSamples = 5;

// Whether ranks exchange whole messages on the board, without a schedule.
bool on_board(GroupState& g, const Tuning& tuning, Collective c, const Algorithm* forced,
              std::size_t total_bytes, Rank root) {
  if (!g.board || total_bytes > g.board->capacity()) return false;
  const auto is_whole = [c](const Algorithm& a) {
    return a.name == (c == Collective::kAllReduce || c == Collective::kReduce ? "flat"
                      : c == Collective::kAllToAll                            ? "pairwise"
                                                                              : "direct");
  };
  if (forced) return is_whole(*forced);
  const std::size_t n = g.ranks.size();
  const bool parts = by_blocks(c) && c != Collective::kReduceScatter;
  const std::size_t each = parts ? total_bytes / n : total_bytes;
  if (each * (n - 1) > tuning.board_read_bytes) return false;
  if (total_bytes <= kBoardAlways || g.core->profile.size() == 0) return true;
  const PickKey key{c, size_class_of(total_bytes), g.shape.deterministic};
  const Candidate& first = candidates_of(g, key, root).front();
  return first.measured_us <= 0 || is_whole(*first.algorithm);
}

// Selects the algorithm of a call.
const Algorithm* choose(GroupState& g, Collective c, const Algorithm* forced,
                        std::size_t total_bytes, Rank root) {
  if (forced) return forced;
  const PickKey key{c, size_class_of(total_bytes), g.shape.deterministic};
  auto& found = g.settled[static_cast<std::size_t>(c)].pick;
  if (!found || found->first != key) {
    auto it = g.picks.find(key);
    if (it == g.picks.end())
      it = g.picks.emplace(key, candidates_of(g, key, root).front().algorithm).first;
    found = &*it;
  }
  return found->second;
}

std::unique_ptr<Plan> make_plan(GroupState& g, Collective c, std::size_t total_bytes,
                                const PlanKey& key) {
  const Core& core = *g.core;
  Shape shape = g.shape;
  shape.root = key.root;
  const Algorithm& a = *key.algorithm;
  const Schedule schedule = a.build(shape);
  const auto link = [&](Rank peer, int) {
    return core.links.link_of(core.job->rank(), g.ranks[static_cast<std::size_t>(peer)]);
  };
  const PlanRequest request{.collective = c,
                            .network = !g.one_machine,
                            .in_place = key.in_place,
                            .root = key.root,
                            .premultiplied = key.premultiplied,
                            .world = g.ranks,
                            .links = core.links.kinds,
                            .link_of = link};
  auto plan = std::make_unique<Plan>(compile(
      schedule, request, key.in_rounds || (key.small && wants_packed(total_bytes, schedule))));
  const Algorithm* const known = find_algorithm(c, a.name);
  plan->algorithm = known ? static_cast<int>(known - algorithms().data()) : -1;
  // Computed once per plan; a call's head contains only this hash.
  shape.rank = 0;
  const Schedule rank0 = g.me == 0 ? schedule : a.build(shape);
  plan->common = common_hash(*plan, hash(rank0));
  plan->outline =
      outline_of(c, shape, plan->layout == Plan::Layout::kBlocks, [&](Rank r) -> Schedule {
        shape.rank = r;
        return r == 0 ? rank0 : a.build(shape);
      });
  return plan;
}

// Returns the plan of a described call; null, with the reason in `status`, if the rail contract
// refuses its algorithm.
const Plan* plan_for(GroupState& g, Collective c, const Prepared& p, Status& status)
    WEFT_REQUIRES(core_held) {
  const bool on_device = g.compute && g.compute->on_device();
  const bool small =
      by_blocks(c) && may_pack(p.total_bytes, static_cast<int>(g.ranks.size())) && !on_device;
  const bool premultiplied = reduces(c) && p.of.op == RedOp::kPreMulSum;
  const bool by_name = p.of.forced == p.algorithm;  // the user named it
  PlanKey key{p.algorithm,           p.of.root,       p.of.in_place, small, premultiplied,
              g.shape.deterministic, g.core->port_set};
  const auto found = [&]() -> auto& {
    auto& kept = *g.cache->plans.try_emplace(key).first;
    if (!kept.second) kept.second = make_plan(g, c, p.total_bytes, key);
    return kept;
  };
  GroupState::Settled& last = g.settled[static_cast<std::size_t>(c)];
  if (!last.plan || last.plan->first != key || last.by_name != by_name) {
    if (status = check_rails(g, *p.algorithm, p.of.root, by_name); !status.ok()) return nullptr;
    last.plan = &found();
    last.by_name = by_name;
  }
  const Plan* const plan = last.plan->second.get();
  if (plan->layout != Plan::Layout::kBlocks || !plan->network || p.what.is_vector || g.compute ||
      !may_pack_rounds(c, g.core->costs))
    return plan;
  key.in_rounds = true;
  const Plan* const packed = found().second.get();
  const auto chunks = static_cast<std::size_t>(plan->nchunks);
  const bool packs =
      packs_rounds(g.core->tuning, c, packed->outline, plan->outline,
                   static_cast<double>(p.total_bytes / chunks), chunks, g.core->costs);
  return packs ? packed : plan;
}

// Describes the call, but not how it runs.
Prepared& describe(GroupState& g, Collective c, const Call& call, const Prepared::Arguments& given,
                   PreparedRef& kept) {
  Prepared& p = kept.renew();
  const std::size_t n = g.ranks.size();
  const Rank me = g.ranks[static_cast<std::size_t>(g.me)];
  p.of = given;
  p.total_bytes = total_bytes(c, call, n);
  const Rank root = given.message && !given.sends ? me : given.root;  // a message's receiver
  p.head = call.is_vector ? uneven_signature(c, call, root, me, g.id, 0)
                          : signature(c, call, root, g.id, 0);
  if (given.lane) p.head.about[2] |= kLaneBit | (given.on_device ? kDeviceBit : 0);
  p.what = {.comm = g.id,
            .leader = g.ranks.front(),
            .members = static_cast<int>(n),
            .collective = c,
            .is_vector = call.is_vector,
            .lane = given.lane,
            .on_device = given.on_device,
            .replay = given.replay,
            .message = given.message,
            .sends = given.sends,
            .type = call.type,
            .op = call.op,
            .codec = call.codec,
            .root = given.root,
            .count = given.message ? p.total_bytes : call.count};
  if (call.is_vector)
    p.what.set_word(by_pairs(p.what)
                        ? std::accumulate(call.counts.begin(), call.counts.end(), std::uint64_t{0})
                        : p.head.about[0]);
  p.packed = book::pack(p.what);
  return p;
}

}  // namespace

// ---- the rail contract -----------------------------------------------------------------------

void prove_rails(GroupState& g) {
  if (g.shape.rail.empty() || g.shape.hosts.size() < 2 || std::exchange(g.cache->proved, true))
    return;
  // By collective: how its first algorithm breaks the contract; empty once an algorithm keeps it.
  std::map<Collective, std::string> why;
  for (const Algorithm& a : algorithms()) {
    if (!a.applies(g.shape)) continue;
    const auto [it, first] = why.try_emplace(a.collective);
    if (!first && it->second.empty()) continue;
    const auto breach = find_breach(a, g.shape);
    if (!breach)
      it->second.clear();
    else if (first)
      it->second = fmt::format("{}: {}", a.name, to_string(*breach));
  }
  for (const auto& [collective, path] : why) {
    if (path.empty()) continue;
    const std::string text =
        fmt::format("no algorithm of {} keeps to the rails of these {} ranks; {}", name(collective),
                    g.ranks.size(), path);
    if (g.core->options.cross_rail == "never")
      throw Error(
          fmt::format("{}. Give every host a rank on each rail, or allow it with "
                      "WEFT_CROSS_RAIL=auto or allow",
                      text));
    if (g.me == 0) log().warn("weft: {}", text);
  }
}

Status check_rails(GroupState& g, const Algorithm& a, Rank root, bool by_name) {
  if (g.shape.rail.empty()) return {};
  const std::string& cross_rail = g.core->options.cross_rail;
  const auto [it, fresh] = g.cache->breaches.try_emplace({&a, root, g.shape.deterministic});
  std::string& why = it->second;
  if (fresh) {
    Shape shape = g.shape;
    shape.root = root;
    if (const auto breach = find_breach(a, shape)) {
      why = to_string(*breach);
      const auto level = g.me == 0 ? spdlog::level::warn : spdlog::level::info;  // once per group
      if (cross_rail == "auto" && !by_name)
        log().log(level, "weft: {} {} leaves its rail: {}", name(a.collective), a.name, why);
    }
  }
  if (why.empty() || (cross_rail == "auto" && !by_name)) return {};
  return {Code::kInvalidArgument,
          fmt::format("{} {} leaves its rail: {}. Let `auto` choose, or allow it with "
                      "WEFT_CROSS_RAIL=allow",
                      name(a.collective), a.name, why)};
}

// ---- calls -----------------------------------------------------------------------------------

const PreparedRef& described(GroupState& g, Collective c, const Call& call,
                             const Prepared::Arguments& given) {
  PreparedRef& p = g.prepared_for(c, given.message ? 2 * given.root + given.sends : given.root);
  if (!p || p->of != given || call.is_vector) describe(g, c, call, given, p);
  return p;
}

bool prepare(GroupState& g, Collective c, const Call& call, const Prepared::Arguments& given,
             PreparedRef& kept, Status& status) {
  Prepared& p = describe(g, c, call, given, kept);
  p.of.selection = 0;  // until the plan is found
  const std::size_t n = g.ranks.size();
  const Core& core = *g.core;
  const std::size_t block = call.count * size_of(call.type);
  const std::size_t mine = block * static_cast<std::size_t>(g.me);
  const Footprint all = footprint(c), here = footprint(c, g.me, given.root);
  p.in_bytes = block * blocks_in(here.in, n);
  p.out_bytes = block * blocks_in(here.out, n);
  p.in_at = all.in != all.out && all.in == Part::kAll ? mine : 0;
  p.out_at = all.in != all.out && all.out == Part::kAll ? mine : 0;
  p.timed = !by_pairs(p.head);
  p.empty = p.total_bytes == 0 && c != Collective::kBarrier;
  p.board =
      p.timed && !p.empty && on_board(g, core.tuning, c, given.forced, p.total_bytes, given.root);
  if (!p.board && !p.empty) {
    // A rank that forwards blocks must know their sizes; in a vector all_to_all only the two ends
    // know a block's size.
    p.algorithm = p.timed ? choose(g, c, given.forced, p.total_bytes, given.root)
                          : find_algorithm(c, "pairwise");
    p.plan = plan_for(g, c, p, status);
    if (!p.plan) return false;
    p.slicing = slicing_for(core.tuning, *p.plan, p.total_bytes, core.costs);
  }
  // Descriptions of vector calls and of calls with a Compute are not reused: blocks differ from
  // call to call, and a Compute has its own plans.
  if (!call.is_vector && !g.compute) p.of.selection = given.selection;
  return true;
}

void Communicator::learn(Collective collective, std::size_t total_bytes, std::string_view algorithm,
                         double us) {
  GroupState& g = state();
  const CoreLock lock(g.core->mutex);
  const Algorithm* found = find_algorithm(collective, algorithm);
  if (!found)
    throw Error(fmt::format("{} has no algorithm '{}'; there are {}", weft::name(collective),
                            algorithm, algorithm_names(collective)));
  for (Profile* p : {&g.core->profile, &g.core->learnt_times})
    p->add(collective, shape_of(g), total_bytes, found->name, us, kLearntSamples);
  g.core->groups.forget_candidates();
  ++g.core->selection;
  g.picks.clear();
  g.settled = {};
}

}  // namespace weft
