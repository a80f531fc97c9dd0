/* Times MPI collectives, blocking and nonblocking: prints "name bytes microseconds" per call and
   size, with the mean over ranks. Roots rotate; counts of reduce_scatter differ if they
   cannot be equal. mpi_calls.py alternates runs with and without libweft_mpi.so. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kAllreduce, kBcast, kAllgather, kReduceScatter, kAlltoall, kBarrier, kCollectives };
static const char* const kNames[] = {"allreduce",      "bcast",    "allgather",
                                     "reduce_scatter", "alltoall", "barrier"};
static const int kSizes[] = {8, 4 << 10, 64 << 10, 1 << 20, 4 << 20};
enum { kNumberOfSizes = sizeof kSizes / sizeof *kSizes };

static int rank, size;
static char *in, *out;
static int* counts;

static void call(int collective, int bytes, int root) {
  const MPI_Comm all = MPI_COMM_WORLD;
  const int floats = bytes / 4;
  switch (collective) {
    case kAllreduce:
      MPI_Allreduce(in, out, floats, MPI_FLOAT, MPI_SUM, all);
      break;
    case kBcast:
      MPI_Bcast(out, bytes, MPI_BYTE, root, all);
      break;
    case kAllgather:
      MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, all);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, all);
      break;
    case kAlltoall:
      MPI_Alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, all);
      break;
    default:
      MPI_Barrier(all);
  }
}

static void start_and_wait(int collective, int bytes, int root) {
  const MPI_Comm all = MPI_COMM_WORLD;
  const int floats = bytes / 4;
  MPI_Request r;
  switch (collective) {
    case kAllreduce:
      MPI_Iallreduce(in, out, floats, MPI_FLOAT, MPI_SUM, all, &r);
      break;
    case kBcast:
      MPI_Ibcast(out, bytes, MPI_BYTE, root, all, &r);
      break;
    case kAllgather:
      MPI_Iallgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, all, &r);
      break;
    case kReduceScatter:
      MPI_Ireduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, all, &r);
      break;
    case kAlltoall:
      MPI_Ialltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, all, &r);
      break;
    default:
      MPI_Ibarrier(all, &r);
  }
  MPI_Wait(&r, MPI_STATUS_IGNORE);
}

static void measure(int blocking, int collective, int bytes) {
  int times = bytes <= 4096 ? 2000 : bytes <= 65536 ? 500 : bytes <= 1 << 20 ? 60 : 12;
  if (size > 2) times = times / 2 + 2;
  for (int i = 0; i < size; ++i) counts[i] = bytes / 4 / size + (i < bytes / 4 % size);
  double begin = 0, all = 0;
  for (int k = -times / 10 - 2; k < times; ++k) {
    if (k == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
      begin = MPI_Wtime();
    }
    (blocking ? call : start_and_wait)(collective, bytes, k < 0 ? 0 : k % size);
  }
  const double us = (MPI_Wtime() - begin) / times * 1e6;
  MPI_Reduce(&us, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("%s%s %d %.3f\n", blocking ? "" : "i", kNames[collective],
           collective == kBarrier ? 0 : bytes, all / size);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const size_t most = (size_t)kSizes[kNumberOfSizes - 1] * (size_t)size;
  in = calloc(most, 1);
  out = calloc(most, 1);
  counts = malloc((size_t)size * sizeof *counts);
  for (int blocking = 1; blocking >= 0; --blocking)
    for (int c = 0; c < kCollectives; ++c)
      for (int s = 0; s < (c == kBarrier ? 1 : kNumberOfSizes); ++s)
        measure(blocking, c, kSizes[s]);
  MPI_Finalize();
  return 0;
}
