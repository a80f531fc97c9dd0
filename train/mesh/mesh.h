// Mesh: the ranks of a job as data x tensor x pipeline coordinates, and this rank's group along
// each axis.
#pragma once

#include <string>
#include <vector>

#include "train/mesh/axis.h"

namespace weft::train {

// Ranks along `tensor` are adjacent, ranks along `pipeline` farthest apart: tensor parallelism
// stays inside a host and the other axes on a rail.
struct MeshShape {
  int data = 1, tensor = 1, pipeline = 1;
  // Number of ranks that shard the state of the data axis (ZeRO; fewer than all: MiCS, arXiv
  // 2205.00119); 0: all ranks of the axis.
  int shard = 0;
  // Algorithm of all-reduces, and of other collectives with an algorithm of this name.
  std::string algorithm = "auto";

  int ranks() const { return data * tensor * pipeline; }
};

// The place of a rank in the mesh.
struct Coordinates {
  int data, tensor, pipeline;
};
Coordinates coordinates(const MeshShape& shape, Rank rank);
// Returns the ranks of `rank`'s pipeline, first stage first.
std::vector<Rank> pipeline_of(const MeshShape& shape, Rank rank);

class Mesh {
 public:
  // Collective, with the same shape on every rank. Throws Error if the shape and the job differ in
  // the number of ranks.
  Mesh(World& world, const MeshShape& shape);

  const MeshShape shape;
  const Coordinates at;
  Axis all, data, tensor, pipeline;
  // Parts of the data axis: ranks that shard a state; ranks with the same shard.
  Axis shard, replica;
  Axis ends;  // first and last stage of this pipeline; size 1 on other stages

  // Collective. Duplicates `replica`, for calls without an order relative to calls of `replica`.
  Axis replica_again();

  bool first_stage() const { return at.pipeline == 0; }
  bool last_stage() const { return at.pipeline + 1 == shape.pipeline; }
};

// Bytes sent by this rank, by peer: an axis counts the bytes to peers that differ only in its
// coordinate; `other` counts all other bytes (for example of norm and loss).
struct AxisBytes {
  std::uint64_t data = 0, tensor = 0, pipeline = 0, other = 0;
  AxisBytes& operator+=(const AxisBytes& o);
  AxisBytes operator-(const AxisBytes& o) const;
};

// Sums the traffic of this rank by axis.
class AxisCounter {
 public:
  AxisCounter(const World& world, const MeshShape& shape);  // the world must outlive the counter
  // Returns the bytes since the World was constructed. Copies the World's metrics, O(ranks): call
  // it once per step, not per action.
  AxisBytes sent() const;

 private:
  const World& world_;
  std::vector<std::uint64_t AxisBytes::*> axis_of_;  // the sum for bytes to a peer, by peer
};

}  // namespace weft::train
