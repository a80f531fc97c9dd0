// BlockOwnership: which ranks contribute a block to a collective, and which ranks must hold the
// block at the end. The checker verifies schedules against it, and the plan uses it for the layout
// of the user's buffers.
//
// A block is the part of a message that belongs to one rank (all_gather, reduce_scatter, gather,
// scatter), or that one rank sends to another (all_to_all: block source * n + destination). The
// other collectives have no blocks: their answers apply to every chunk, and `block` is ignored.
#pragma once

#include "coll/footprint.h"
#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

struct BlockOwnership {
  Collective collective;
  int nranks = 1;
  Rank root = 0;

  int blocks() const {
    if (!by_blocks(collective)) return 0;
    return collective == Collective::kAllToAll ? nranks * nranks : nranks;
  }
  // Whether rank r contributes the block: every rank in a reduction, otherwise only the source.
  bool starts(Rank r, int block) const {
    return reduces(collective) || collective == Collective::kBarrier || r == source(block);
  }
  Rank source(int block) const {
    const Footprint f = footprint(collective);
    if (f.out != Part::kAll) return root;
    return f.in == Part::kAll ? block / nranks : block;
  }
  // Whether rank r must hold the block at the end.
  bool ends(Rank r, int block) const {
    const Footprint f = footprint(collective);
    if (rooted(collective) && !from_root(collective)) return r == root;
    if (f.in != Part::kAll) return true;
    return r == (f.out == Part::kAll ? block % nranks : block);
  }
};

}  // namespace weft
