// Which piece of which logical tensor is where: the index of a checkpoint, and of what a rank has.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/model/stage.h"

namespace weft::train {

// A Piece without its numbers; in a manifest with the place where they are.
struct IndexEntry {
  Logical logical;
  std::size_t begin = 0, count = 0;
  std::string file;
  std::uint64_t offset = 0;  // bytes
  std::uint32_t crc = 0;
  std::string key() const;  // equal for pieces that are the same numbers
};

nlohmann::json to_json(const IndexEntry& entry);
// Throws Error when the text is not that of an entry that can be.
IndexEntry entry_from_json(const nlohmann::json& j);

// Elements of a wanted piece that one stored piece has, contiguous in both.
struct Extent {
  std::size_t source;  // index in `stored`
  std::size_t from;    // first element in the stored piece
  std::size_t to;      // first element in the wanted piece
  std::size_t count;
};

// Cuts a wanted piece into extents. `stored` are pieces of the same tensor. Throws Error that names
// the tensor and its first element that nobody has.
std::vector<Extent> find_extents(const Logical& wanted, std::size_t begin, std::size_t count,
                                 const std::vector<const IndexEntry*>& stored);

// Which rank writes which piece: of all ranks that have it the one with the least to write so far.
// writers[r][i]: rank r writes its i-th piece.
std::vector<std::vector<bool>> share_out(const std::vector<std::vector<IndexEntry>>& of_rank);

// Throws Error when these pieces, each written once, leave a part of a tensor out.
void require_whole(const std::vector<IndexEntry>& all);

}  // namespace weft::train
