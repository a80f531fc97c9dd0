// Coordinates, groups and byte counts of the mesh. Does not depend on messages.
#include "train/mesh/mesh.h"

#include <fmt/format.h>

#include <utility>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"

namespace weft::train {

Coordinates coordinates(const MeshShape& shape, Rank rank) {
  return {rank / shape.tensor % shape.data, rank % shape.tensor,
          rank / (shape.tensor * shape.data)};
}

std::vector<Rank> pipeline_of(const MeshShape& shape, Rank rank) {
  const int of_stage = shape.tensor * shape.data;
  std::vector<Rank> ranks;
  for (Rank r = rank % of_stage; r < shape.ranks(); r += of_stage) ranks.push_back(r);
  return ranks;
}

namespace {

const MeshShape& checked(const MeshShape& shape, const World& world) {
  if (shape.ranks() != world.size())
    throw UsageError(fmt::format(
        "--dp {} x --tp {} x --pp {} = {}, but the job has {} ranks; "
        "start it with -N {}, or change one of them",
        shape.data, shape.tensor, shape.pipeline, shape.ranks(), world.size(), shape.ranks()));
  const int s = shape.shard;
  if (s > 0 && shape.data % s != 0)
    throw UsageError(fmt::format("--shard-group {} with --dp {}: choose a divisor of {}", s,
                                 shape.data, shape.data));
  return shape;
}

// Sets the algorithm of all-reduces, and of other collectives with an algorithm `name`.
void choose_algorithm(Axis& axis, const std::string& name) {
  if (name == "auto" || axis.size() == 1) return;
  axis.comm().set_algorithm(Collective::kAllReduce, name);
  for (const Collective c :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast})
    try {
      axis.comm().set_algorithm(c, name);
    } catch (const Error&) {  // no algorithm of that name
    }
}

}  // namespace

Mesh::Mesh(World& world, const MeshShape& s)
    : shape(checked(s, world)), at(coordinates(s, world.rank())) {
  Communicator job = world.world();
  all = Axis(job.duplicate());
  data = Axis(job.split(at.tensor * shape.pipeline + at.pipeline, at.data));
  tensor = Axis(job.split(at.data * shape.pipeline + at.pipeline, at.tensor));
  pipeline = Axis(job.split(at.data * shape.tensor + at.tensor, at.pipeline));
  const int group = shape.shard == 0 ? shape.data : shape.shard;
  shard = Axis(data.comm().split(at.data / group, at.data));
  replica = Axis(data.comm().split(at.data % group, at.data));
  const bool is_end = shape.pipeline > 1 && (first_stage() || last_stage());
  ends = Axis(pipeline.comm().split(is_end ? 0 : Communicator::kNoColor, at.pipeline));
  for (Axis* axis : {&data, &tensor, &shard, &replica, &ends})
    choose_algorithm(*axis, shape.algorithm);
  for (const auto& [axis, name] : {std::pair{&all, "job"},
                                   {&data, "data"},
                                   {&tensor, "tensor"},
                                   {&pipeline, "pipeline"},
                                   {&shard, "shard"},
                                   {&replica, "replica"},
                                   {&ends, "ends"}})
    if (axis->comm()) Internals::name_communicator(axis->comm(), name);
}

Axis Mesh::replica_again() {
  Axis again(replica.comm().duplicate());
  choose_algorithm(again, shape.algorithm);
  Internals::name_communicator(again.comm(), "replica");
  return again;
}

AxisBytes& AxisBytes::operator+=(const AxisBytes& o) {
  data += o.data, tensor += o.tensor, pipeline += o.pipeline, other += o.other;
  return *this;
}
AxisBytes AxisBytes::operator-(const AxisBytes& o) const {
  return {data - o.data, tensor - o.tensor, pipeline - o.pipeline, other - o.other};
}

AxisCounter::AxisCounter(const World& world, const MeshShape& shape) : world_(world) {
  const Coordinates me = coordinates(shape, world.rank());
  for (Rank r = 0; r < world.size(); ++r) {
    const Coordinates peer = coordinates(shape, r);
    const bool d = peer.data != me.data, t = peer.tensor != me.tensor,
               p = peer.pipeline != me.pipeline;
    axis_of_.push_back(d && !t && !p   ? &AxisBytes::data
                       : t && !d && !p ? &AxisBytes::tensor
                       : p && !d && !t ? &AxisBytes::pipeline
                                       : &AxisBytes::other);
  }
}

AxisBytes AxisCounter::sent() const {
  AxisBytes sum;
  for (const Metrics::Traffic& t : world_.metrics().traffic)
    sum.*axis_of_[static_cast<std::size_t>(t.peer)] += t.bytes_sent;
  return sum;
}

}  // namespace weft::train
