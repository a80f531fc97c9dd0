// Decides which ranks continue after a rank died, and which processes join. Does not compute steps.
#include "train/cli/train_elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

#include "coll/jobs/session.h"
#include "coll/runtime/internals.h"
#include "train/checkpoint/waiting_room.h"
#include "transport/job/bootstrap.h"

namespace weft {
namespace {

// Returns the replicas without lost ranks, in order, limited by replicas_that_fit().
std::vector<int> whole_replicas(const train::TrainOptions& o, const std::vector<Rank>& left) {
  std::map<int, int> ranks;
  for (const Rank r : left) ++ranks[coordinates(o.mesh, r).data];
  std::vector<int> whole;
  for (const auto& [replica, count] : ranks)
    if (count == o.mesh.tensor * o.mesh.pipeline) whole.push_back(replica);
  whole.resize(static_cast<std::size_t>(replicas_that_fit(o, static_cast<int>(whole.size()))));
  return whole;
}

// Returns how many replicas `ranks` ranks can form, at most `most`; 0: none.
int most_replicas(const train::TrainOptions& o, std::size_t ranks, int most) {
  const int there = static_cast<int>(ranks) / (o.mesh.tensor * o.mesh.pipeline);
  return replicas_that_fit(o, std::min(most, there));
}

// Decided on rank 0, executed by all: the members of the next World, in rank order.
struct Plan {
  std::vector<Rank> members;        // ranks of the previous World
  std::vector<std::string> guests;  // waiting processes
  bool anew = false;                // construct a World; otherwise keep this World
  bool in_memory = false;
  std::string fault;  // the reason if there is no next World
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Plan, members, guests, anew, in_memory, fault)

// Returns rank 0's plan on all ranks of the World.
Plan agreed(World& world, const Plan& mine) {
  const auto all = job_of(world).all_gather(nlohmann::json(mine).dump());
  return nlohmann::json::parse(all[0]).get<Plan>();
}

// Plans a World of `ranks` ranks: first ranks of this World, then waiting processes.
Plan plan_of(std::size_t here, std::size_t ranks, std::vector<std::string> waiting) {
  Plan plan;
  plan.members.resize(std::min(here, ranks));
  std::iota(plan.members.begin(), plan.members.end(), 0);
  waiting.resize(ranks - plan.members.size());
  plan.guests = std::move(waiting);
  plan.anew = ranks != here;
  return plan;
}

// Plans a World of the remaining ranks and of processes that wait, now or until the deadline.
Plan new_replicas(const train::TrainOptions& o, const Elasticity& how, std::size_t left) {
  const train::WaitingRoom room(how.folder);
  const auto each = static_cast<std::size_t>(o.mesh.tensor * o.mesh.pipeline);
  // The other ranks wait for this one, up to the timeout.
  const auto deadline = std::chrono::steady_clock::now() + how.options.timeout / 2;
  for (;;) {
    const auto waiting = how.gains ? room.waiting() : std::vector<std::string>();
    if (const int n = most_replicas(o, left + waiting.size(), how.replicas); n > 0)
      return plan_of(left, static_cast<std::size_t>(n) * each, waiting);
    if (!how.gains || std::chrono::steady_clock::now() > deadline) {
      Plan plan;
      plan.fault = fmt::format(
          "{} ranks are left{}, and no whole replica among them; --restart N starts the job again",
          left, how.gains ? fmt::format(", {} wait to join", waiting.size()) : "");
      return plan;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Collective over the previous World. Constructs the plan's World, with an id from its first
// member. Returns null if the plan does not include this rank.
std::unique_ptr<World> follow(const Plan& plan, World& before, const Elasticity& how) {
  const Rank first = plan.members.front();
  const auto size = static_cast<int>(plan.members.size() + plan.guests.size());
  std::string id;
  if (before.rank() == first) {
    id = World::unique_id();
    for (std::size_t g = 0; g < plan.guests.size(); ++g)
      train::WaitingRoom(how.folder)
          .invite(plan.guests[g], static_cast<Rank>(plan.members.size() + g), size, id);
  }
  id = job_of(before).all_gather(id)[static_cast<std::size_t>(first)];
  const auto place = std::ranges::find(plan.members, before.rank());
  if (place == plan.members.end()) return nullptr;
  return World::from_id(id, static_cast<Rank>(place - plan.members.begin()), size, how.options);
}

}  // namespace

Elasticity elasticity(const TrainFlags& flags) {
  Elasticity how{flags.save, flags.options.mesh.data, flags.job.replacements > 0,
                 world_options("train", flags.job)};
  how.options.timeout = job_from_environment().timeout;
  return how;
}

int replicas_that_fit(const train::TrainOptions& o, int most) {
  const auto fit = [&](int n) {
    return o.batch % (o.micro_batch * static_cast<train::Index>(n)) == 0 &&
           (o.mesh.shard == 0 || n % o.mesh.shard == 0);
  };
  while (most > 0 && !fit(most)) --most;
  return most;
}

Regrouped go_on_without_lost(World& world, const train::TrainOptions& o, const Elasticity& how,
                             int step, double loss, double norm) {
  Regrouped s;
  // Ranks blocked in a group without the dead rank have not detected its death.
  world.abort("a rank of another group died");
  std::unique_ptr<World> left = world.shrink();
  const auto all = job_of(*left).all_gather(fmt::format("{} {} {}", step, loss, norm));
  for (const std::string& text : all) {
    std::istringstream in(text);
    std::string their_loss, their_norm;  // only stod() parses "nan" and "inf"
    int done = 0;
    in >> done >> their_loss >> their_norm;
    if (done > s.step) s = {nullptr, false, done, std::stod(their_loss), std::stod(their_norm)};
  }
  Plan plan;
  if (left->rank() == 0) {
    const std::vector<int> whole = whole_replicas(o, left->former_ranks());
    for (Rank r = 0; r < left->size(); ++r) {
      const int replica =
          coordinates(o.mesh, left->former_ranks()[static_cast<std::size_t>(r)]).data;
      if (std::ranges::find(whole, replica) != whole.end()) plan.members.push_back(r);
    }
    plan.anew = plan.members.size() < all.size();
    if (whole.empty()) plan = new_replicas(o, how, all.size());
    plan.in_memory = !whole.empty() && o.zero == 0 && !o.parameter_server;
  }
  plan = agreed(*left, plan);
  if (!plan.fault.empty()) throw Error(plan.fault);
  s.in_memory = plan.in_memory;
  s.world = plan.anew ? follow(plan, *left, how) : std::move(left);
  return s;
}

std::unique_ptr<World> take_in(World& world, const train::TrainOptions& o, const Elasticity& how) {
  Plan plan;
  if (world.rank() == 0) {
    const auto waiting = train::WaitingRoom(how.folder).waiting();
    const auto here = static_cast<std::size_t>(world.size());
    const int n = most_replicas(o, here + waiting.size(), how.replicas);
    if (n > o.mesh.data)
      plan = plan_of(here, static_cast<std::size_t>(n * o.mesh.tensor * o.mesh.pipeline), waiting);
  }
  plan = agreed(world, plan);
  if (!plan.anew) return nullptr;
  try {
    return follow(plan, world, how);
  } catch (const std::exception& e) {  // a rank died; if of this World, this World fails next
    if (world.rank() == 0)
      fmt::print(stderr, "weft train: warning: {} ranks did not join: {}\n", plan.guests.size(),
                 e.what());
    return nullptr;
  }
}

std::unique_ptr<World> wait_to_join(const Elasticity& how) {
  while (const auto invited = train::WaitingRoom(how.folder).wait(how.options.timeout)) try {
      return World::from_id(invited->id, invited->rank, invited->size, how.options);
    } catch (const std::exception& e) {  // another rank died: wait again
      fmt::print(stderr, "weft train: warning: rank {} did not join: {}\n", invited->rank,
                 e.what());
    }
  return nullptr;
}

}  // namespace weft
