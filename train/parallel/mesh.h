// Mesh: the ranks of a job as data x tensor x pipeline parallel coordinates, and this rank's group
// along each axis.
#pragma once

#include <string>
#include <vector>

#include "train/parallel/axis.h"

namespace weft::train {

struct MeshShape {
  int data = 1, tensor = 1, pipeline = 1;
  // From the axis whose ranks are neighbours to the one whose are farthest: tensor parallelism
  // then stays inside the hosts, and the other two keep to a rail.
  std::string order = "tp,dp,pp";
  // Ranks that share the state of the data-parallel axis between them (ZeRO; MiCS, arXiv
  // 2205.00119, where less than all); 0: all of the axis.
  int shard = 0;
  // Of all-reduces, and of the other collectives where they have one of that name.
  std::string algorithm = "auto";

  int ranks() const { return data * tensor * pipeline; }
};

// Of a rank.
struct Coordinates {
  int data, tensor, pipeline;
};
// Throws Error when the order names no axis, or one twice.
Coordinates coordinates(const MeshShape& shape, Rank rank);
// The ranks of that rank's pipeline, from the first stage on.
std::vector<Rank> pipeline_of(const MeshShape& shape, Rank rank);

class Mesh {
 public:
  // Like a collective: every rank of the world makes the same. Throws Error when the shape is not
  // that of the job.
  Mesh(World& world, const MeshShape& shape);

  const MeshShape shape;
  const Coordinates at;
  Axis all, data, tensor, pipeline;
  Axis shard, replica;  // the data axis in two: those that share a state, those with the same part
  Axis ends;            // first and last stage of this pipeline; alone on the others

  // The ranks of `replica` once more, for calls in an order of their own. Like a collective.
  Axis replica_again();

  bool first_stage() const { return at.pipeline == 0; }
  bool last_stage() const { return at.pipeline + 1 == shape.pipeline; }
};

// Bytes that this rank has sent along each axis, as weft counted them: every pair of ranks that
// differs in one coordinate belongs to that axis. What else there is (the norm, the loss) goes to
// `other`.
struct AxisBytes {
  std::uint64_t data = 0, tensor = 0, pipeline = 0, other = 0;
};
AxisBytes bytes_sent(const World& world, const MeshShape& shape);

}  // namespace weft::train
