// Who goes on after a rank died. This file does not know what a step computes.
#include "train/cli/train_elastic.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "coll/runtime/internals.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

// Replicas none of whose ranks is gone, in order.
std::vector<int> whole_replicas(const train::MeshShape& mesh, const std::vector<Rank>& left) {
  std::map<int, int> ranks;
  for (const Rank r : left) ++ranks[coordinates(mesh, r).data];
  std::vector<int> whole;
  for (const auto& [replica, count] : ranks)
    if (count == mesh.tensor * mesh.pipeline) whole.push_back(replica);
  return whole;
}

}  // namespace

bool can_lose_replicas(const train::TrainOptions& o, bool on_device) {
  return o.zero == 0 && !o.parameter_server && !on_device && o.mesh.data > 1;
}

Survivors go_on_without_lost(World& world, const train::TrainOptions& o, int step, double loss,
                             double norm) {
  const Rank before = world.rank();
  Survivors s;
  s.world = world.shrink();
  const auto all = job_of(*s.world).all_gather(fmt::format("{} {} {}", step, loss, norm));
  for (const std::string& text : all) {
    std::istringstream in(text);
    std::string their_loss, their_norm;  // "nan" and "inf" are numbers to stod() only
    int done = 0;
    in >> done >> their_loss >> their_norm;
    if (done > s.step)
      s = {std::move(s.world), 0, done, std::stod(their_loss), std::stod(their_norm)};
  }
  std::vector<int> whole = whole_replicas(o.mesh, s.world->former_ranks());
  while (!whole.empty() && o.batch % (o.micro_batch * static_cast<train::Index>(whole.size())) != 0)
    whole.pop_back();
  if (whole.empty())
    throw Error(fmt::format(
        "{} ranks are left, and no whole replica among them; --restart N starts the job again",
        s.world->size()));
  s.replicas = static_cast<int>(whole.size());
  if (s.replicas * o.mesh.tensor * o.mesh.pipeline == s.world->size()) return s;

  // Ranks of other replicas leave. All know that by now; a rank that does the second gather has
  // seen the result of the first, so that the abort can end nothing but that second one.
  try {
    job_of(*s.world).all_gather("");
  } catch (const Error&) {
  }
  const int mine = coordinates(o.mesh, before).data;
  if (std::find(whole.begin(), whole.end(), mine) == whole.end()) {
    s.world->abort("its replica is not needed any more");
    s.world.reset();
    return s;
  }
  while (s.world->failure().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  s.world = s.world->shrink();
  return s;
}

}  // namespace weft
