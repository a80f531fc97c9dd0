// The index of a checkpoint, or of a rank's tensors: which part of which logical tensor is where.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/model/stage.h"

namespace weft::train {

// A TensorPart without its numbers; in a manifest also the place of the numbers.
struct IndexEntry {
  Logical logical;
  std::size_t begin = 0, count = 0;
  std::string file;
  std::uint64_t offset = 0;  // bytes
  std::uint32_t crc = 0;
  std::string key() const;  // equal for parts with the same numbers
};

nlohmann::json to_json(const IndexEntry& entry);
// Throws Error when the JSON does not describe a possible entry.
IndexEntry entry_from_json(const nlohmann::json& j);

// Elements of a wanted piece that one stored piece has, contiguous in both pieces.
struct Extent {
  std::size_t source;  // index in `stored`
  std::size_t from;    // first element in the stored piece
  std::size_t to;      // first element in the wanted piece
  std::size_t count;
};

// Cuts a wanted piece into extents of `stored`, pieces of the same tensor. Throws Error that names
// the tensor and its first element that no stored piece has.
std::vector<Extent> find_extents(const Logical& wanted, std::size_t begin, std::size_t count,
                                 const std::vector<const IndexEntry*>& stored);

// Chooses the writer of each piece: of all ranks that have the piece, the one with the fewest
// elements so far. In the result, [r][i] says whether rank r writes its i-th piece.
std::vector<std::vector<bool>> share_out(const std::vector<std::vector<IndexEntry>>& of_rank);

// Throws Error when the pieces do not cover all elements of their tensors.
void require_whole(const std::vector<IndexEntry>& all);

}  // namespace weft::train
