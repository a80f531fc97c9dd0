// What a collective promises of every block: which ranks bring it, and which must hold it in the
// end. The checker proves it, the plan lays out the user's buffers by it.
//
// A block is the part of a message that belongs to one rank (all_gather, reduce_scatter, gather,
// scatter), or that one rank has for another (all_to_all: block source * n + destination). The
// others have no blocks: what is said here then holds for every chunk, and `block` is ignored.
#pragma once

#include "coll/types.h"
#include "topo/status.h"

namespace weft {

struct Promise {
  Collective collective;
  int nranks = 1;
  Rank root = 0;

  int blocks() const {
    if (!by_blocks(collective)) return 0;
    return collective == Collective::kAllToAll ? nranks * nranks : nranks;
  }
  // In reductions every rank brings a contribution; otherwise the one rank whose data it is.
  bool starts(Rank r, int block) const {
    return reduces(collective) || collective == Collective::kBarrier || r == source(block);
  }
  Rank source(int block) const {
    switch (collective) {
      case Collective::kAllGather:
      case Collective::kGather:
        return block;
      case Collective::kAllToAll:
        return block / nranks;
      default:
        return root;
    }
  }
  bool ends(Rank r, int block) const {
    switch (collective) {
      case Collective::kReduceScatter:
      case Collective::kScatter:
        return block == r;
      case Collective::kReduce:
      case Collective::kGather:
        return r == root;
      case Collective::kAllToAll:
        return block % nranks == r;
      default:
        return true;
    }
  }
};

}  // namespace weft
