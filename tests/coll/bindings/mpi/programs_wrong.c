/* Small MPI programs: calls with wrong arguments, equal on all ranks, and the result of the
   communicator's error handler (MPI 4.0, 9.3 to 9.5). */
#include "programs.h"

static MPI_Comm comm;

static void begin(void) {
  clear();
  MPI_Comm_dup(WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN); /* Open MPI calls it for some buffers */
}
/* Errors do not end the communicator. */
static void end(void) {
  clear();
  see("after", MPI_Allreduce(in, out, 5, MPI_INT, MPI_SUM, comm));
  see_out("after");
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_free(&comm);
}
static void error_of(const char* call, int error) {
  int kind = 0;
  MPI_Error_class(error, &kind);
  see(call, kind);
}
#define E(...) error_of(#__VA_ARGS__, __VA_ARGS__)
static MPI_Request request;
/* MPI libraries check only some counts, and crash on others, so this program needs weft. */
void wrong_counts(void) {
  int n[kRanks], right[kRanks], at[kRanks];
  MPI_Datatype type = strided();
  begin();
  for (int i = 0; i < size; ++i) n[i] = right[i] = 1, at[i] = i;
  n[size - 1] = -3;
  const int errors[] = {
      MPI_Bcast(in, -1, MPI_INT, 0, comm),
      MPI_Bcast(in, -1, type, 0, comm),
      MPI_Allreduce(in, out, -1, MPI_INT, MPI_SUM, comm),
      MPI_Iallreduce(in, out, -1, MPI_INT, MPI_SUM, comm, &request),
      MPI_Reduce(in, out, -1, MPI_INT, MPI_SUM, 0, comm),
      MPI_Allgather(in, -1, type, out, -1, type, comm),
      MPI_Alltoall(in, -1, MPI_INT, out, -1, MPI_INT, comm),
      MPI_Reduce_scatter_block(MPI_IN_PLACE, out, -2, MPI_INT, MPI_SUM, comm),
      MPI_Allgatherv(in, 1, MPI_INT, out, n, at, MPI_INT, comm),
      MPI_Allgatherv(in, 1, type, out, n, at, type, comm),
      MPI_Alltoallv(in, n, at, MPI_INT, out, right, at, MPI_INT, comm),
      MPI_Alltoallv(in, right, at, type, out, n, at, type, comm),
      MPI_Reduce_scatter(MPI_IN_PLACE, out, n, MPI_INT, MPI_SUM, comm),
      MPI_Iallgatherv(in, 1, type, out, n, at, type, comm, &request),
      rank ? MPI_ERR_COUNT : MPI_Gatherv(in, 1, type, out, n, at, type, 0, comm),
      rank ? MPI_ERR_COUNT : MPI_Scatterv(in, n, at, type, out, 1, type, 0, comm)};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i) {
    int kind;
    MPI_Error_class(errors[i], &kind);
    if (kind != MPI_ERR_COUNT) MPI_Abort(WORLD, 20 + (int)i);
  }
  MPI_Type_free(&type);
  end();
}

void wrong_roots(void) {
  begin();
  for (int root = -5; root <= size; root += size + 5) {
    E(MPI_Bcast(in, 1, MPI_INT, root, comm));
    E(MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, root, comm));
    E(MPI_Gather(in, 1, MPI_INT, out, 1, MPI_INT, root, comm));
    E(MPI_Scatter(in, 1, MPI_INT, out, 1, MPI_INT, root, comm));
    E(MPI_Ibcast(in, 1, MPI_INT, root, comm, &request));
    E(MPI_Ireduce(in, out, 1, MPI_INT, MPI_SUM, root, comm, &request));
  }
  end();
}

void wrong_types(void) {
  MPI_Datatype types[] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
  begin();
  MPI_Type_contiguous(2, MPI_INT, &types[1]); /* not committed */
  for (int t = 0; t < 2; ++t) {
    MPI_Datatype type = types[t];
    E(MPI_Bcast(in, 1, type, 0, comm));
    E(MPI_Allreduce(in, out, 1, type, MPI_SUM, comm));
    E(MPI_Allgather(in, 1, type, out, 1, type, comm));
    E(MPI_Alltoall(in, 1, type, out, 1, type, comm));
    E(MPI_Gather(in, 1, type, out, 1, type, 0, comm));
    E(MPI_Scatter(in, 1, type, out, 1, type, 0, comm));
    E(MPI_Ibcast(in, 1, type, 0, comm, &request));
    E(MPI_Iallgather(in, 1, type, out, 1, type, comm, &request));
  }
  MPI_Type_free(&types[1]);
  end();
}

void wrong_operators(void) {
  begin();
  E(MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
  E(MPI_Reduce(in, out, 1, MPI_INT, MPI_OP_NULL, 0, comm));
  E(MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_BAND, comm));
  E(MPI_Allreduce(in, out, 1, MPI_BYTE, MPI_SUM, comm));
  E(MPI_Iallreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm, &request));
  E(MPI_Reduce_scatter_block(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
  end();
}

void wrong_buffers(void) {
  begin();
  E(MPI_Allreduce(MPI_IN_PLACE, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm));
  E(MPI_Allreduce(in, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm));
  E(MPI_Allgather(in, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, comm));
  E(MPI_Iallreduce(MPI_IN_PLACE, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm, &request));
#ifdef OPEN_MPI /* MPICH accepts it */
  E(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm));
#else /* Open MPI accepts these */
  E(MPI_Allreduce(in, in, 1, MPI_INT, MPI_SUM, comm));
  E(MPI_Alltoall(in, 1, MPI_INT, in, 1, MPI_INT, comm));
  E(MPI_Bcast(NULL, 1, MPI_INT, 0, comm));
  E(MPI_Allreduce(NULL, out, 1, MPI_INT, MPI_SUM, comm));
#endif
  end();
}

static int called;
static void handle(MPI_Comm* of, int* error, ...) {
  int kind, there = *of == comm;
  MPI_Error_class(*error, &kind);
  see("handler", kind), see("its communicator", there);
  ++called;
}
void handlers(void) { /* the program's handler is called once for each error */
  MPI_Errhandler mine;
  begin();
  MPI_Comm_create_errhandler(handle, &mine);
  MPI_Comm_set_errhandler(comm, mine);
  MPI_Errhandler_free(&mine);
  E(MPI_Bcast(in, 1, MPI_INT, 77, comm));
  E(MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
  E(MPI_Ibcast(in, 1, MPI_DATATYPE_NULL, 0, comm, &request));
  see("called", called);
  end();
}
