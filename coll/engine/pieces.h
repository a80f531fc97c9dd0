// The chunks of a plan: pieces of the message's blocks.
#pragma once

#include <cstddef>
#include <vector>

#include "coll/schedule/block_ownership.h"
#include "coll/schedule/schedule.h"

namespace weft {

// A chunk's part of the message: piece `index` of the `of` pieces of a block
// (coll/schedule/block_ownership.h).
struct Piece {
  int block = 0, index = 0, of = 1;
  // Weights of this piece, of those before it, of the whole block; `all` 0: pieces are equal.
  double weight = 0, before = 0, all = 0;
  // Where the piece begins, and ends, in a block of `elements` elements.
  std::size_t begin(std::size_t elements) const { return cut(elements, index, before); }
  std::size_t end(std::size_t elements) const { return cut(elements, index + 1, before + weight); }

 private:
  std::size_t cut(std::size_t elements, int i, double weights) const {
    if (i == of) return elements;
    if (all > 0) return static_cast<std::size_t>(static_cast<double>(elements) * (weights / all));
    return elements * static_cast<std::size_t>(i) / static_cast<std::size_t>(of);
  }
};

// The pieces of a schedule of blocks.
std::vector<Piece> pieces_of(const Schedule& s, int blocks);

// Keeps the chunks of an all_to_all that this rank sends, receives or forwards. Chunks of a step
// stay consecutive, since all of them are kept.
void keep_touched(Schedule& s, std::vector<Piece>& pieces, const BlockOwnership& ownership);

// Splits steps over several chunks into steps over one chunk each, for the block layout: chunks
// with consecutive numbers are not contiguous there. Both ends of a transfer do this alike.
// Receives of one reduction stay together, chunk by chunk; ends[i] is the end of the reduction of
// step i, as two adjacent ones may have a chunk in common.
Schedule split_chunks(const Schedule& schedule, std::vector<std::size_t>& ends);

}  // namespace weft
