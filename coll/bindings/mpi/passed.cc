// Start and end of MPI, the calls that create communicators, and the calls that are counted and
// passed on: collectives that weft lacks, persistent collectives and partitioned messages.
#include "coll/bindings/mpi/functions.h"

using namespace weft::mpi;  // NOLINT: MPI's names are global

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  check_mpi();
  const int error = PMPI_Init(argc, argv);
  if (error == MPI_SUCCESS) start();
  return error;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  check_mpi();
  const int error = PMPI_Init_thread(argc, argv, required, provided);
  if (error == MPI_SUCCESS) start();
  return error;
}

int MPI_Finalize() {
  finish();
  return PMPI_Finalize();
}

// ---- communicators

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  return adopt(PMPI_Comm_dup(comm, made), comm, made);
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* made) {
  return adopt(PMPI_Comm_dup_with_info(comm, info, made), comm, made);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  return adopt(PMPI_Comm_split(comm, color, key, made), comm, made);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
  return adopt(PMPI_Comm_split_type(comm, type, key, info, made), comm, made);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* made) {
  return adopt(PMPI_Comm_create(comm, group, made), comm, made);
}

int MPI_Cart_create(MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder,
                    MPI_Comm* made) {
  return adopt(PMPI_Cart_create(comm, ndims, dims, periods, reorder, made), comm, made);
}

int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm* made) {
  return adopt(PMPI_Cart_sub(comm, remain, made), comm, made);
}

int MPI_Graph_create(MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,
                     MPI_Comm* made) {
  return adopt(PMPI_Graph_create(comm, nodes, index, edges, reorder, made), comm, made);
}

int MPI_Dist_graph_create(MPI_Comm comm, int n, const int sources[], const int degrees[],
                          const int destinations[], const int weights[], MPI_Info info, int reorder,
                          MPI_Comm* made) {
  return adopt(
      PMPI_Dist_graph_create(comm, n, sources, degrees, destinations, weights, info, reorder, made),
      comm, made);
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int nin, const int sources[], const int win[],
                                   int nout, const int destinations[], const int wout[],
                                   MPI_Info info, int reorder, MPI_Comm* made) {
  return adopt(PMPI_Dist_graph_create_adjacent(comm, nin, sources, win, nout, destinations, wout,
                                               info, reorder, made),
               comm, made);
}
}

// ---- collectives that MPI runs

#define WEFT_BOTH(NAME, INAME, C, START, TYPED, ...)                                               \
  WEFT_PASSED(MPI_##NAME##C, (WEFT_UNWRAP TYPED, MPI_Comm comm), __VA_ARGS__, comm)                \
  WEFT_PASSED(MPI_##INAME##C, (WEFT_UNWRAP TYPED, MPI_Comm comm, MPI_Request * made), __VA_ARGS__, \
              comm, made)
WEFT_LEFT(WEFT_BOTH, , int, int)
#ifdef WEFT_LARGE_COUNTS
WEFT_LEFT(WEFT_BOTH, _c, MPI_Count, MPI_Aint)
#endif

// Persistent collectives are counted when they are created.
#ifdef WEFT_PERSISTENT
#define WEFT_INIT(NAME, INAME, C, START, TYPED, ...) \
  WEFT_MADE(WEFT_PERSISTENT, NAME##_init##C, TYPED, __VA_ARGS__)
#define WEFT_MADE(PREFIX, NAME, TYPED, ...) WEFT_MADE_BY(PREFIX, NAME, TYPED, __VA_ARGS__)
#define WEFT_MADE_BY(PREFIX, NAME, TYPED, ...)                                                     \
  WEFT_PASSED(PREFIX##NAME, (WEFT_UNWRAP TYPED, MPI_Comm comm, MPI_Info info, MPI_Request * made), \
              __VA_ARGS__, comm, info, made)
WEFT_TAKEN(WEFT_INIT, , int, int)
WEFT_LEFT(WEFT_INIT, , int, int)
#define WEFT_BARRIER(PREFIX) WEFT_BARRIER_BY(PREFIX)
#define WEFT_BARRIER_BY(PREFIX)                                                               \
  WEFT_PASSED(PREFIX##Barrier_init, (MPI_Comm comm, MPI_Info info, MPI_Request * made), comm, \
              info, made)
WEFT_BARRIER(WEFT_PERSISTENT)
#ifdef WEFT_LARGE_COUNTS
WEFT_TAKEN(WEFT_INIT, _c, MPI_Count, MPI_Aint)
WEFT_LEFT(WEFT_INIT, _c, MPI_Count, MPI_Aint)
#endif
#endif

// Partitioned messages.
#if MPI_VERSION >= 4 || (defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5)
WEFT_PASSED(MPI_Psend_init,
            (const void* data, int parts, MPI_Count count, MPI_Datatype type, int to, int tag,
             MPI_Comm comm, MPI_Info info, MPI_Request* made),
            data, parts, count, type, to, tag, comm, info, made)
WEFT_PASSED(MPI_Precv_init,
            (void* data, int parts, MPI_Count count, MPI_Datatype type, int from, int tag,
             MPI_Comm comm, MPI_Info info, MPI_Request* made),
            data, parts, count, type, from, tag, comm, info, made)
#endif
