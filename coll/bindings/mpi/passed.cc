// The beginning and end of MPI, the calls that make communicators, and the collectives that weft
// does not have, which are counted and passed on.
#include "coll/bindings/mpi/library.h"

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

// ---- collectives that MPI does

#define WEFT_PASSED(NAME, TYPED, ...)            \
  static Count count_##NAME("MPI_" #NAME);       \
  extern "C" int MPI_##NAME(WEFT_UNWRAP TYPED) { \
    count_##NAME.add(Way::kNotOffered);          \
    return PMPI_##NAME(__VA_ARGS__);             \
  }
#define WEFT_UNWRAP(...) __VA_ARGS__

WEFT_PASSED(Scan, (const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c), in,
            out, n, t, op, c)
WEFT_PASSED(Exscan, (const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c), in,
            out, n, t, op, c)
WEFT_PASSED(Iscan,
            (const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c,
             MPI_Request* q),
            in, out, n, t, op, c, q)
WEFT_PASSED(Iexscan,
            (const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c,
             MPI_Request* q),
            in, out, n, t, op, c, q)
WEFT_PASSED(Alltoallw,
            (const void* in, const int ni[], const int ai[], const MPI_Datatype ti[], void* out,
             const int no[], const int ao[], const MPI_Datatype to[], MPI_Comm c),
            in, ni, ai, ti, out, no, ao, to, c)
WEFT_PASSED(Ialltoallw,
            (const void* in, const int ni[], const int ai[], const MPI_Datatype ti[], void* out,
             const int no[], const int ao[], const MPI_Datatype to[], MPI_Comm c, MPI_Request* q),
            in, ni, ai, ti, out, no, ao, to, c, q)
WEFT_PASSED(Neighbor_allgather,
            (const void* in, int ni, MPI_Datatype ti, void* out, int no, MPI_Datatype to,
             MPI_Comm c),
            in, ni, ti, out, no, to, c)
WEFT_PASSED(Neighbor_alltoall,
            (const void* in, int ni, MPI_Datatype ti, void* out, int no, MPI_Datatype to,
             MPI_Comm c),
            in, ni, ti, out, no, to, c)
WEFT_PASSED(Neighbor_allgatherv,
            (const void* in, int ni, MPI_Datatype ti, void* out, const int no[], const int ao[],
             MPI_Datatype to, MPI_Comm c),
            in, ni, ti, out, no, ao, to, c)
WEFT_PASSED(Neighbor_alltoallv,
            (const void* in, const int ni[], const int ai[], MPI_Datatype ti, void* out,
             const int no[], const int ao[], MPI_Datatype to, MPI_Comm c),
            in, ni, ai, ti, out, no, ao, to, c)
WEFT_PASSED(Ineighbor_allgather,
            (const void* in, int ni, MPI_Datatype ti, void* out, int no, MPI_Datatype to,
             MPI_Comm c, MPI_Request* q),
            in, ni, ti, out, no, to, c, q)
WEFT_PASSED(Ineighbor_alltoall,
            (const void* in, int ni, MPI_Datatype ti, void* out, int no, MPI_Datatype to,
             MPI_Comm c, MPI_Request* q),
            in, ni, ti, out, no, to, c, q)
