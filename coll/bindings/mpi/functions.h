// The collectives of MPI, one row each: their parameters are listed here once, and collectives.cc
// and passed.cc generate every form of a function from its row.
//
// X(NAME, InAME, C, weft's start function, (parameters with types), parameters): NAME is MPI's,
// without "MPI_". The communicator follows the parameters. C, N and AT: nothing, int and int, or
// the form with large counts (MPI 4.0): _c, MPI_Count and MPI_Aint.
#pragma once

#include "coll/bindings/mpi/library.h"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#if MPI_VERSION >= 4
#define WEFT_LARGE_COUNTS 1
#endif
// The prefix of persistent collectives. Open MPI has them before MPI 4.0.
#if MPI_VERSION >= 4 || (defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5)
#define WEFT_PERSISTENT MPI_
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define WEFT_PERSISTENT MPIX_
#endif

#define WEFT_UNWRAP(...) __VA_ARGS__

// A function that MPI runs, and whose calls are counted.
#define WEFT_PASSED(NAME, TYPED, ...)      \
  static Count count_##NAME(#NAME);        \
  extern "C" int NAME(WEFT_UNWRAP TYPED) { \
    count_##NAME.add(Way::kNotOffered);    \
    return P##NAME(__VA_ARGS__);           \
  }

// The collectives that weft takes over.
#define WEFT_TAKEN(X, C, N, AT)                                                                    \
  X(Bcast, Ibcast, C, bcast, (void* data, N count, MPI_Datatype type, int root), data, count,      \
    type, root)                                                                                    \
  X(Allreduce, Iallreduce, C, allreduce,                                                           \
    (const void* in, void* out, N count, MPI_Datatype type, MPI_Op op), in, out, count, type, op)  \
  X(Reduce, Ireduce, C, weft::mpi::reduce,                                                         \
    (const void* in, void* out, N count, MPI_Datatype type, MPI_Op op, int root), in, out, count,  \
    type, op, root)                                                                                \
  X(Reduce_scatter_block, Ireduce_scatter_block, C, reduce_scatter_block,                          \
    (const void* in, void* out, N count, MPI_Datatype type, MPI_Op op), in, out, count, type, op)  \
  X(Reduce_scatter, Ireduce_scatter, C, reduce_scatter,                                            \
    (const void* in, void* out, const N counts[], MPI_Datatype type, MPI_Op op), in, out, counts,  \
    type, op)                                                                                      \
  X(Allgather, Iallgather, C, allgather,                                                           \
    (const void* in, N nin, MPI_Datatype tin, void* out, N nout, MPI_Datatype tout), in, nin, tin, \
    out, nout, tout)                                                                               \
  X(Allgatherv, Iallgatherv, C, allgatherv,                                                        \
    (const void* in, N nin, MPI_Datatype tin, void* out, const N counts[], const AT at[],          \
     MPI_Datatype tout),                                                                           \
    in, nin, tin, out, counts, at, tout)                                                           \
  X(Gather, Igather, C, gather,                                                                    \
    (const void* in, N nin, MPI_Datatype tin, void* out, N nout, MPI_Datatype tout, int root), in, \
    nin, tin, out, nout, tout, root)                                                               \
  X(Gatherv, Igatherv, C, gatherv,                                                                 \
    (const void* in, N nin, MPI_Datatype tin, void* out, const N counts[], const AT at[],          \
     MPI_Datatype tout, int root),                                                                 \
    in, nin, tin, out, counts, at, tout, root)                                                     \
  X(Scatter, Iscatter, C, scatter,                                                                 \
    (const void* in, N nin, MPI_Datatype tin, void* out, N nout, MPI_Datatype tout, int root), in, \
    nin, tin, out, nout, tout, root)                                                               \
  X(Scatterv, Iscatterv, C, scatterv,                                                              \
    (const void* in, const N counts[], const AT at[], MPI_Datatype tin, void* out, N nout,         \
     MPI_Datatype tout, int root),                                                                 \
    in, counts, at, tin, out, nout, tout, root)                                                    \
  X(Alltoall, Ialltoall, C, alltoall,                                                              \
    (const void* in, N nin, MPI_Datatype tin, void* out, N nout, MPI_Datatype tout), in, nin, tin, \
    out, nout, tout)                                                                               \
  X(Alltoallv, Ialltoallv, C, alltoallv,                                                           \
    (const void* in, const N nin[], const AT atin[], MPI_Datatype tin, void* out, const N nout[],  \
     const AT atout[], MPI_Datatype tout),                                                         \
    in, nin, atin, tin, out, nout, atout, tout)

// The collectives that MPI runs.
#define WEFT_LEFT(X, C, N, AT)                                                                     \
  X(Scan, Iscan, C, , (const void* in, void* out, N n, MPI_Datatype type, MPI_Op op), in, out, n,  \
    type, op)                                                                                      \
  X(Exscan, Iexscan, C, , (const void* in, void* out, N n, MPI_Datatype type, MPI_Op op), in, out, \
    n, type, op)                                                                                   \
  X(Alltoallw, Ialltoallw, C, ,                                                                    \
    (const void* in, const N nin[], const AT atin[], const MPI_Datatype tin[], void* out,          \
     const N nout[], const AT atout[], const MPI_Datatype tout[]),                                 \
    in, nin, atin, tin, out, nout, atout, tout)                                                    \
  X(Neighbor_allgather, Ineighbor_allgather, C, ,                                                  \
    (const void* in, N nin, MPI_Datatype tin, void* out, N nout, MPI_Datatype tout), in, nin, tin, \
    out, nout, tout)                                                                               \
  X(Neighbor_allgatherv, Ineighbor_allgatherv, C, ,                                                \
    (const void* in, N nin, MPI_Datatype tin, void* out, const N nout[], const AT atout[],         \
     MPI_Datatype tout),                                                                           \
    in, nin, tin, out, nout, atout, tout)                                                          \
  X(Neighbor_alltoall, Ineighbor_alltoall, C, ,                                                    \
    (const void* in, N nin, MPI_Datatype tin, void* out, N nout, MPI_Datatype tout), in, nin, tin, \
    out, nout, tout)                                                                               \
  X(Neighbor_alltoallv, Ineighbor_alltoallv, C, ,                                                  \
    (const void* in, const N nin[], const AT atin[], MPI_Datatype tin, void* out, const N nout[],  \
     const AT atout[], MPI_Datatype tout),                                                         \
    in, nin, atin, tin, out, nout, atout, tout)                                                    \
  X(Neighbor_alltoallw, Ineighbor_alltoallw, C, ,                                                  \
    (const void* in, const N nin[], const MPI_Aint atin[], const MPI_Datatype tin[], void* out,    \
     const N nout[], const MPI_Aint atout[], const MPI_Datatype tout[]),                           \
    in, nin, atin, tin, out, nout, atout, tout)
