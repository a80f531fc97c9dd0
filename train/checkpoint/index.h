// The index of a checkpoint, or of a rank's tensors: the location of each part of each tensor.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/model/stage.h"

namespace weft::train {

// A TensorPart without its data; in a manifest also the location of the data.
struct IndexEntry {
  Logical logical;
  std::size_t begin = 0, count = 0;
  std::string file;
  std::uint64_t offset = 0;  // offset in the file, in bytes
  std::uint32_t crc = 0;
  std::string key() const;  // a text that is equal for replicas of a part
};

nlohmann::json to_json(const IndexEntry& entry);
// Throws Error if the JSON is not a valid entry.
IndexEntry entry_from_json(const nlohmann::json& j);

// Elements of a wanted piece in one stored piece, contiguous in both.
struct Extent {
  std::size_t source;  // index in `stored`
  std::size_t from;    // first element in the stored piece
  std::size_t to;      // first element in the wanted piece
  std::size_t count;
};

// Splits a wanted piece into extents of `stored`, pieces of the same tensor. Throws Error with the
// tensor and its first element that no stored piece has.
std::vector<Extent> find_extents(const Logical& wanted, std::size_t begin, std::size_t count,
                                 const std::vector<const IndexEntry*>& stored);

// Chooses the writer of each piece: the rank with the fewest elements so far, among those that have
// the piece. Element [r][i] of the result is true if rank r writes its i-th piece.
std::vector<std::vector<bool>> share_out(const std::vector<std::vector<IndexEntry>>& of_rank);

// Throws Error if the pieces do not cover all elements of their tensors.
void require_whole(const std::vector<IndexEntry>& all);

}  // namespace weft::train
