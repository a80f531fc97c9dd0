// The collectives of a Communicator, one row each, from which communicator.h declares, and
// communicator.cc defines, both forms of a collective.
//
// X(name, collective, (parameters with types), the Call that they describe, root)
#pragma once

#define WEFT_EACH_COLLECTIVE(X)                                                                   \
  X(all_reduce, kAllReduce,                                                                       \
    (const void* in, void* out, std::size_t count, DType type, Reduction op),                     \
    even(in, out, count, type, op), 0)                                                            \
  X(all_gather, kAllGather, (const void* in, void* out, std::size_t count, DType type),           \
    even(in, out, count, type), 0)                                                                \
  X(reduce_scatter, kReduceScatter,                                                               \
    (const void* in, void* out, std::size_t count, DType type, Reduction op),                     \
    even(in, out, count, type, op), 0)                                                            \
  X(broadcast, kBroadcast, (const void* in, void* out, std::size_t count, DType type, Rank root), \
    even(in, out, count, type), root)                                                             \
  X(barrier, kBarrier, (), Call(), 0)                                                             \
  X(reduce, kReduce,                                                                              \
    (const void* in, void* out, std::size_t count, DType type, Reduction op, Rank root),          \
    even(in, out, count, type, op), root)                                                         \
  X(gather, kGather, (const void* in, void* out, std::size_t count, DType type, Rank root),       \
    even(in, out, count, type), root)                                                             \
  X(scatter, kScatter, (const void* in, void* out, std::size_t count, DType type, Rank root),     \
    even(in, out, count, type), root)                                                             \
  X(all_to_all, kAllToAll, (const void* in, void* out, std::size_t count, DType type),            \
    even(in, out, count, type), 0)                                                                \
  X(all_gather_v, kAllGather, (const void* in, void* out, Blocks blocks, DType type),             \
    uneven(in, out, blocks, type), 0)                                                             \
  X(reduce_scatter_v, kReduceScatter,                                                             \
    (const void* in, void* out, Blocks blocks, DType type, Reduction op),                         \
    uneven(in, out, blocks, type, op), 0)                                                         \
  X(gather_v, kGather, (const void* in, void* out, Blocks blocks, DType type, Rank root),         \
    uneven(in, out, blocks, type), root)                                                          \
  X(scatter_v, kScatter, (const void* in, void* out, Blocks blocks, DType type, Rank root),       \
    uneven(in, out, blocks, type), root)                                                          \
  X(all_to_all_v, kAllToAll,                                                                      \
    (const void* in, Blocks sent, void* out, Blocks received, DType type),                        \
    exchanged(in, sent, out, received, type), 0)
