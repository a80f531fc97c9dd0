// Mesh: the ranks of a job as data x tensor x pipeline coordinates, and this rank's group along
// each axis.
#pragma once

#include <string>
#include <vector>

#include "train/mesh/axis.h"

namespace weft::train {

// Ranks along `tensor` are neighbours, those along `pipeline` farthest apart: tensor parallelism
// stays inside hosts and the other axes on a rail.
struct MeshShape {
  int data = 1, tensor = 1, pipeline = 1;
  // Number of ranks that shard the state of the data axis (ZeRO; fewer than all: MiCS, arXiv
  // 2205.00119); 0: all ranks of the axis.
  int shard = 0;
  // Algorithm of all-reduces, and of other collectives that have one of that name.
  std::string algorithm = "auto";

  int ranks() const { return data * tensor * pipeline; }
};

// The place of a rank in the mesh.
struct Coordinates {
  int data, tensor, pipeline;
};
Coordinates coordinates(const MeshShape& shape, Rank rank);
// Returns the ranks of `rank`'s pipeline, from the first stage on.
std::vector<Rank> pipeline_of(const MeshShape& shape, Rank rank);

class Mesh {
 public:
  // A collective call with the same shape on every rank. Throws Error when the shape does not have
  // the job's number of ranks.
  Mesh(World& world, const MeshShape& shape);

  const MeshShape shape;
  const Coordinates at;
  Axis all, data, tensor, pipeline;
  Axis shard, replica;  // the data axis in two: ranks that shard a state, ranks with the same part
  Axis ends;            // first and last stage of this pipeline; other stages are alone

  // Duplicates `replica`, for calls in an order of their own. A collective call.
  Axis replica_again();

  bool first_stage() const { return at.pipeline == 0; }
  bool last_stage() const { return at.pipeline + 1 == shape.pipeline; }
};

// Bytes that this rank has sent, by the peer's place: an axis has the bytes to peers that differ in
// that coordinate only; `other` has the bytes to all other peers (by the norm and the loss, say).
struct AxisBytes {
  std::uint64_t data = 0, tensor = 0, pipeline = 0, other = 0;
  AxisBytes& operator+=(const AxisBytes& o);
  AxisBytes operator-(const AxisBytes& o) const;
};

// Sums the traffic of this rank by axis.
class AxisCounter {
 public:
  AxisCounter(const World& world, const MeshShape& shape);  // the world must outlive the counter
  // Bytes since the World was made. Copies the World's metrics, whose length is that of the job:
  // for once a step, not for every action.
  AxisBytes sent() const;

 private:
  const World& world_;
  std::vector<std::uint64_t AxisBytes::*> axis_of_;  // by peer
};

}  // namespace weft::train
