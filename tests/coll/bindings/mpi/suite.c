/* An MPI program that compares each collective with the same call under its PMPI name: with
   libweft_mpi.so, MPI_X is weft's function and PMPI_X is MPI's. The program does not use weft.
   Values are small whole numbers, whose sums are exact, so both results must have equal bytes;
   `rounds` uses other values. Prints "right: N comparisons", or the calls that differ; then the
   exit code is 1. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, wrong;
static long compared;

static void differ(const char* call, int n, const char* what) {
  if (++wrong < 20) fprintf(stderr, "rank %d: %s of %d %s differs\n", rank, call, n, what);
}

static void same(const void* a, const void* b, size_t bytes, const char* call, int n,
                 const char* what) {
  ++compared;
  if (bytes && memcmp(a, b, bytes) != 0) differ(call, n, what);
}

/* ---- element types */
struct type {
  MPI_Datatype type;
  const char* name;
  size_t bytes;
  int is_float;
};
static struct type types[] = {
    {0, "int", 4, 0},       {0, "double", 8, 1},   {0, "float", 4, 1},   {0, "long", 8, 0},
    {0, "uint16", 2, 0},    {0, "int8", 1, 0},     {0, "uint64", 8, 0},  {0, "short", 2, 0},
    {0, "long double", 16, 1}, {0, "bool", 1, 0}};
enum { kTypes = sizeof types / sizeof types[0], kBool = kTypes - 1, kLongDouble = kTypes - 2 };

static void fill_types(void) {
  MPI_Datatype all[kTypes] = {MPI_INT,      MPI_DOUBLE,   MPI_FLOAT, MPI_LONG,        MPI_UINT16_T,
                              MPI_INT8_T,   MPI_UINT64_T, MPI_SHORT, MPI_LONG_DOUBLE, MPI_C_BOOL};
  for (int i = 0; i < kTypes; ++i) types[i].type = all[i];
}

static void set(void* data, int t, int i, int value) {
  switch (t) {
    case 0: ((int*)data)[i] = value; break;
    case 1: ((double*)data)[i] = value; break;
    case 2: ((float*)data)[i] = (float)value; break;
    case 3: ((long*)data)[i] = value; break;
    case 4: ((uint16_t*)data)[i] = (uint16_t)value; break;
    case 5: ((int8_t*)data)[i] = (int8_t)value; break;
    case 6: ((uint64_t*)data)[i] = (uint64_t)value; break;
    case 7: ((short*)data)[i] = (short)value; break;
    case kLongDouble: ((long double*)data)[i] = value; break;
    default: ((char*)data)[i] = (char)(value & 1);
  }
}

static void fill(void* data, int t, int n, int who) {
  if (t == kLongDouble) memset(data, 0, (size_t)n * 16); /* its padding bytes */
  for (int i = 0; i < n; ++i) set(data, t, i, (i * 7 + who * 3) % 5 + 1);
}

static int operators(int t, MPI_Op ops[8]) {
  int n = 0;
  if (t == kBool) {
    ops[n++] = MPI_LAND;
    ops[n++] = MPI_LOR;
    ops[n++] = MPI_LXOR;
    return n;
  }
  ops[n++] = MPI_SUM;
  ops[n++] = MPI_MAX;
  ops[n++] = MPI_MIN;
  ops[n++] = MPI_PROD;
  if (types[t].is_float) return n;
  ops[n++] = MPI_BAND;
  ops[n++] = MPI_BOR;
  ops[n++] = MPI_BXOR;
  ops[n++] = MPI_LAND;
  return n;
}

/* ---- reductions */
static const int kCounts[] = {0, 1, 3, 17, 1000, 30011};
enum { kMost = 30011, kRanks = 16 };
static char *in, *a, *b;

static void reductions(MPI_Comm comm) {
  int n, p;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &p);
  for (int t = 0; t < kTypes; ++t) {
    const size_t e = types[t].bytes;
    MPI_Datatype type = types[t].type;
    MPI_Op ops[8];
    const int nops = operators(t, ops);
    for (int c = 0; c < 6; ++c)
      for (int o = 0; o < nops; ++o) {
        const int count = kCounts[c], root = (c + o) % n;
        const size_t bytes = (size_t)count * e;
        if (count > 1000 && o > 1) continue;
        MPI_Request r[2];
        fill(in, t, count, p);
        memset(a, 0, bytes + 16);
        memset(b, 0, bytes + 16);
        MPI_Allreduce(in, a, count, type, ops[o], comm);
        PMPI_Allreduce(in, b, count, type, ops[o], comm);
        same(a, b, bytes, "allreduce", count, types[t].name);
        memcpy(a, in, bytes);
        MPI_Allreduce(MPI_IN_PLACE, a, count, type, ops[o], comm);
        same(a, b, bytes, "allreduce in place", count, types[t].name);
        memcpy(a, in, bytes);
        MPI_Iallreduce(MPI_IN_PLACE, a, count, type, ops[o], comm, &r[0]);
        MPI_Wait(&r[0], MPI_STATUS_IGNORE);
        same(a, b, bytes, "iallreduce in place", count, types[t].name);
        /* Not PMPI_Reduce in place: MPICH 4.0.2 ends by a signal where the root is not rank 0. */
        memset(a, 0, bytes);
        memset(b, 0, bytes);
        PMPI_Reduce(in, b, count, type, ops[o], root, comm);
        MPI_Reduce(in, a, count, type, ops[o], root, comm);
        same(a, b, bytes, "reduce", count, types[t].name);
        if (p == root) memcpy(a, in, bytes);
        MPI_Ireduce(p == root ? MPI_IN_PLACE : in, a, count, type, ops[o], root, comm, &r[0]);
        MPI_Wait(&r[0], MPI_STATUS_IGNORE);
        same(a, b, bytes, "ireduce in place", count, types[t].name);
        /* blocks */
        const int each = count / n;
        const size_t block = (size_t)each * e;
        memset(a, 0, bytes + 16);
        memset(b, 0, bytes + 16);
        MPI_Reduce_scatter_block(in, a, each, type, ops[o], comm);
        PMPI_Reduce_scatter_block(in, b, each, type, ops[o], comm);
        same(a, b, block, "reduce_scatter_block", each, types[t].name);
        memcpy(a, in, bytes);
        MPI_Reduce_scatter_block(MPI_IN_PLACE, a, each, type, ops[o], comm);
        same(a, b, block, "reduce_scatter_block in place", each, types[t].name);
        int counts[kRanks], left = count;
        for (int i = 0; i < n; ++i) { /* the root's count is the largest */
          const int at = (root + i) % n;
          counts[at] = i % 3 == 1 ? 0 : left / 2;
          left -= counts[at];
        }
        memset(a, 0, bytes + 16);
        memset(b, 0, bytes + 16);
        MPI_Ireduce_scatter(in, a, counts, type, ops[o], comm, &r[0]);
        MPI_Waitall(1, r, MPI_STATUSES_IGNORE);
        PMPI_Reduce_scatter(in, b, counts, type, ops[o], comm);
        same(a, b, (size_t)counts[p] * e, "reduce_scatter", count, types[t].name);
        memcpy(a, in, bytes);
        MPI_Reduce_scatter(MPI_IN_PLACE, a, counts, type, ops[o], comm);
        same(a, b, (size_t)counts[p] * e, "reduce_scatter in place", count, types[t].name);
      }
  }
}

/* ---- calls that only move data. `strided`: every second int; only on `odd` ranks if requested */
static void movement(MPI_Comm comm) {
  int n, p;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &p);
  MPI_Datatype strided;
  MPI_Type_vector(1, 1, 1, MPI_INT, &strided);
  MPI_Datatype wide;
  MPI_Type_create_resized(strided, 0, 8, &wide);
  MPI_Type_commit(&wide);
  for (int derived = 0; derived < 4; ++derived)
    for (int c = 0; c < 5; ++c) {
      const int count = kCounts[c], root = c % n;
      /* 1: all ranks, 2: odd ranks, 3: the root */
      const int mine = derived == 1 || (derived == 2 && p % 2) || (derived == 3 && p == root);
      MPI_Datatype type = mine ? wide : MPI_INT;
      const size_t e = mine ? 8 : 4, bytes = (size_t)count * e, all = bytes * (size_t)n;
      MPI_Request r;
      fill(in, 0, (int)(all / 4), p);
      memset(a, 0, all + 16);
      memset(b, 0, all + 16);
      if (p == root) memcpy(a, in, bytes), memcpy(b, in, bytes);
      MPI_Bcast(a, count, type, root, comm);
      PMPI_Bcast(b, count, type, root, comm);
      same(a, b, bytes, "bcast", count, "ints");
      memset(a, 0, all + 16);
      memset(b, 0, all + 16);
      MPI_Allgather(in, count, type, a, count, type, comm);
      PMPI_Allgather(in, count, type, b, count, type, comm);
      same(a, b, all, "allgather", count, "ints");
      memset(a, 0, all);
      memcpy(a + bytes * (size_t)p, in, bytes);
      MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, count, type, comm, &r);
      MPI_Wait(&r, MPI_STATUS_IGNORE);
      if (!mine) same(a, b, all, "iallgather in place", count, "ints");
      memset(a, 0, all + 16);
      memset(b, 0, all + 16);
      MPI_Gather(in, count, type, a, count, type, root, comm);
      PMPI_Gather(in, count, type, b, count, type, root, comm);
      same(a, b, all, "gather", count, "ints");
      if (p == root) {
        memcpy(a + bytes * (size_t)p, in, bytes);
        MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, count, type, root, comm);
        if (!mine) same(a, b, all, "gather in place", count, "ints");
      } else {
        MPI_Gather(in, count, type, NULL, 0, MPI_DATATYPE_NULL, root, comm);
      }
      memset(a, 0, all + 16);
      memset(b, 0, all + 16);
      MPI_Scatter(in, count, type, a, count, type, root, comm);
      PMPI_Scatter(in, count, type, b, count, type, root, comm);
      same(a, b, bytes, "scatter", count, "ints");
      memset(a, 0, all + 16);
      if (p == root)
        MPI_Iscatter(in, count, type, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root, comm, &r);
      else
        MPI_Iscatter(NULL, 0, MPI_DATATYPE_NULL, a, count, type, root, comm, &r);
      MPI_Wait(&r, MPI_STATUS_IGNORE);
      if (p != root) same(a, b, bytes, "iscatter in place at the root", count, "ints");
      memset(a, 0, all + 16);
      memset(b, 0, all + 16);
      MPI_Alltoall(in, count, type, a, count, type, comm);
      PMPI_Alltoall(in, count, type, b, count, type, comm);
      same(a, b, all, "alltoall", count, "ints");
      memcpy(a, in, all);
      MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, count, type, comm);
      if (!mine) same(a, b, all, "alltoall in place", count, "ints");
      /* vectors: blocks of i + 1 elements in another order, with holes; an empty one */
      int counts[kRanks], at[kRanks], end = 0;
      for (int i = n - 1; i >= 0; --i) {
        counts[i] = i == 1 ? 0 : count / n + i;
        at[i] = end;
        end += counts[i] + 2;
      }
      const size_t span = (size_t)end * e;
      fill(in, 0, (int)(span / 4), p);
      memset(a, 0, span + 16);
      memset(b, 0, span + 16);
      MPI_Allgatherv(in, counts[p], type, a, counts, at, type, comm);
      PMPI_Allgatherv(in, counts[p], type, b, counts, at, type, comm);
      same(a, b, span, "allgatherv", count, "ints");
      memset(a, 0, span + 16);
      memset(b, 0, span + 16);
      MPI_Gatherv(in, counts[p], type, a, counts, at, type, root, comm);
      PMPI_Gatherv(in, counts[p], type, b, counts, at, type, root, comm);
      same(a, b, span, "gatherv", count, "ints");
      memset(a, 0, span + 16);
      memset(b, 0, span + 16);
      MPI_Iscatterv(in, counts, at, type, a, counts[p], type, root, comm, &r);
      MPI_Wait(&r, MPI_STATUS_IGNORE);
      PMPI_Scatterv(in, counts, at, type, b, counts[p], type, root, comm);
      same(a, b, span, "iscatterv", count, "ints");
      int row[kRanks], column[kRanks], atrow[kRanks], atcolumn[kRanks], erow = 0, ecolumn = 0;
      for (int i = 0; i < n; ++i) {
        row[i] = (p * n + i) % 4 * (count / 8 + 1);
        column[i] = (i * n + p) % 4 * (count / 8 + 1);
        atrow[i] = erow;
        atcolumn[i] = ecolumn;
        erow += row[i];
        ecolumn += column[i] + 1;
      }
      if (mine) continue; /* 8 bytes an element may not fit */
      fill(in, 0, erow, p);
      memset(a, 0, (size_t)ecolumn * 4);
      memset(b, 0, (size_t)ecolumn * 4);
      if (derived == 0) {
        MPI_Alltoallv(in, row, atrow, MPI_INT, a, column, atcolumn, MPI_INT, comm);
        PMPI_Alltoallv(in, row, atrow, MPI_INT, b, column, atcolumn, MPI_INT, comm);
        same(a, b, (size_t)ecolumn * 4, "alltoallv", count, "ints");
      }
    }
  MPI_Type_free(&wide);
  MPI_Type_free(&strided);
  MPI_Barrier(comm);
}

/* ---- requests, and concurrent calls of MPI */
static void requests(MPI_Comm comm) {
  int n, p;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &p);
  const int next = (p + 1) % n, before = (p + n - 1) % n, big = 1 << 18;
  int *out = malloc(sizeof(int) * (size_t)big), *to = malloc(sizeof(int) * (size_t)big);
  for (int i = 0; i < big; ++i) out[i] = p + i, to[i] = -1;
  /* A long message that needs its sender's MPI while the sender is in a barrier of weft's. */
  MPI_Request r[6];
  MPI_Isend(out, big, MPI_INT, next, 1, comm, &r[0]);
  if (p % 2) MPI_Recv(to, big, MPI_INT, before, 1, comm, MPI_STATUS_IGNORE);
  MPI_Barrier(comm);
  if (p % 2 == 0) MPI_Recv(to, big, MPI_INT, before, 1, comm, MPI_STATUS_IGNORE);
  MPI_Wait(&r[0], MPI_STATUS_IGNORE);
  ++compared;
  if (to[big - 1] != before + big - 1) differ("send beside a barrier", big, "ints");
  /* Rank 0 is in MPI until the other ranks complete a call that needs rank 0's progress. */
  double sum = p, sums[4] = {0};
  MPI_Iallreduce(&sum, &sums[0], 1, MPI_DOUBLE, MPI_SUM, comm, &r[0]);
  int go = 0;
  if (p == 0) {
    MPI_Recv(&go, 1, MPI_INT, n - 1, 2, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&r[0], MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&r[0], MPI_STATUS_IGNORE);
    if (p == n - 1) MPI_Send(&p, 1, MPI_INT, 0, 2, comm);
  }
  ++compared;
  if (sums[0] != n * (n - 1) / 2) differ("iallreduce beside a receive", 1, "double");
  /* Several requests at once, of weft and of MPI, completed by every kind of wait. */
  for (int way = 0; way < 5; ++way) {
    double x[4], y[4] = {0};
    int token = -1, i, flag = 0, left = 6, indices[6];
    for (i = 0; i < 4; ++i) x[i] = p + i;
    MPI_Irecv(&token, 1, MPI_INT, before, 3, comm, &r[0]);
    for (i = 0; i < 4; ++i)
      MPI_Iallreduce(&x[i], &y[i], 1, MPI_DOUBLE, i % 2 ? MPI_MAX : MPI_SUM, comm, &r[i + 1]);
    MPI_Isend(&p, 1, MPI_INT, next, 3, comm, &r[5]);
    if (way == 0) MPI_Waitall(6, r, MPI_STATUSES_IGNORE);
    while (way == 1 && !flag) MPI_Testall(6, r, &flag, MPI_STATUSES_IGNORE);
    while (way == 2 && left--) MPI_Waitany(6, r, &i, MPI_STATUS_IGNORE);
    while (way == 3 && left > 0) {
      MPI_Waitsome(6, r, &i, indices, MPI_STATUSES_IGNORE);
      left -= i;
    }
    for (i = 0; way == 4 && i < 6; ++i)
      for (flag = 0; !flag;) MPI_Test(&r[i], &flag, MPI_STATUS_IGNORE);
    for (i = 0; i < 6; ++i) {
      ++compared;
      if (r[i] != MPI_REQUEST_NULL) differ("a request", way, "way");
    }
    for (i = 0; i < 4; ++i) {
      ++compared;
      if (y[i] != (i % 2 ? n - 1 + i : n * (n - 1) / 2 + n * i)) differ("iallreduce", way, "way");
    }
    ++compared;
    if (token != before) differ("irecv", way, "way");
  }
  free(out);
  free(to);
}

/* ---- communicators */
static void longest(void* from, void* to, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i)
    if (((int*)from)[i] > ((int*)to)[i]) ((int*)to)[i] = ((int*)from)[i];
}

static void on(MPI_Comm comm) {
  reductions(comm);
  movement(comm);
}

/* Attributes of the program: copied with a duplicate, deleted with each communicator, once. */
static int deleted;
static int forget(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  ++deleted;
  return MPI_SUCCESS;
}

static void attributes(void) {
  MPI_Comm made, twice;
  int key, there = 0, mine = 17, *found = NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  MPI_Comm_create_keyval(MPI_COMM_DUP_FN, forget, &key, NULL);
  MPI_Comm_set_attr(made, key, &mine);
  MPI_Comm_dup(made, &twice);
  MPI_Barrier(twice);
  MPI_Comm_get_attr(twice, key, &found, &there);
  ++compared;
  if (!there || found != &mine) differ("get_attr", 1, "attribute");
  MPI_Comm_free(&twice);
  MPI_Comm_free(&made);
  MPI_Comm_free_keyval(&key);
  ++compared;
  if (deleted != 2) differ("deletion", deleted, "attributes");
}

static void communicators(void) {
  attributes();
  MPI_Comm made;
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  requests(made);
  MPI_Comm_free(&made);
  MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &made); /* backwards */
  on(made);
  MPI_Comm odd;
  MPI_Comm_split(made, rank % 2, 0, &odd); /* of a derived communicator */
  on(odd);
  MPI_Comm_free(&made);
  if (rank % 2 == 0) movement(odd); /* on a part, after its parent is freed */
  MPI_Comm_free(&odd);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, 0, &made);
  if (made != MPI_COMM_NULL) {
    movement(made);
    MPI_Comm_free(&made);
  }
  MPI_Group all, some;
  int none[] = {0};
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_excl(all, 1, none, &some);
  MPI_Comm_create(MPI_COMM_WORLD, some, &made);
  if (made != MPI_COMM_NULL) {
    movement(made);
    MPI_Comm_free(&made);
  }
  /* Only its members create it, so MPI runs its calls. */
  if (rank != 0) {
    MPI_Comm_create_group(MPI_COMM_WORLD, some, 7, &made);
    movement(made);
    MPI_Comm_free(&made);
  }
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  int dims[] = {size}, periods[] = {1};
  MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 1, &made);
  movement(made);
  int left, right, from[2] = {0}, other[2] = {0};
  MPI_Cart_shift(made, 0, 1, &left, &right);
  MPI_Neighbor_allgather(&rank, 1, MPI_INT, from, 1, MPI_INT, made);
  PMPI_Neighbor_allgather(&rank, 1, MPI_INT, other, 1, MPI_INT, made);
  same(from, other, sizeof from, "neighbor_allgather", 1, "int");
  MPI_Comm_free(&made);
  on(MPI_COMM_SELF);
  /* MPI runs the calls of an intercommunicator. */
  if (size > 1) {
    MPI_Comm half, inter;
    const int low = rank < size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 2 : 0, 5, &inter);
    int mine = rank, sum = 0, expected = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    for (int i = 0; i < size; ++i) expected += (i < size / 2) != low ? i : 0;
    same(&sum, &expected, sizeof sum, "allreduce between groups", 1, "int");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
  }
  /* User-defined operators and types, and pairs. */
  MPI_Op op;
  MPI_Op_create(longest, 1, &op);
  int mine = rank * 7 % size, most = -1, expected = -1;
  MPI_Allreduce(&mine, &most, 1, MPI_INT, op, MPI_COMM_WORLD);
  PMPI_Allreduce(&mine, &expected, 1, MPI_INT, op, MPI_COMM_WORLD);
  same(&most, &expected, sizeof most, "allreduce by a user's operator", 1, "int");
  MPI_Op_free(&op);
  struct {
    double value;
    int at;
  } pair = {rank * 5 % size, rank}, best = {0, 0}, right_one = {0, 0};
  MPI_Allreduce(&pair, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  PMPI_Allreduce(&pair, &right_one, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  ++compared;
  if (best.at != right_one.at) differ("maxloc", 1, "pair");
  MPI_Bcast(&pair, 1, MPI_DOUBLE_INT, 0, MPI_COMM_WORLD); /* has a gap */
  ++compared;
  if (pair.at != 0) differ("bcast", 1, "pair");
  int prefix = 0, before = 0;
  MPI_Scan(&rank, &prefix, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  PMPI_Scan(&rank, &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  same(&prefix, &before, sizeof prefix, "scan", 1, "int");
  /* Many communicators, created and freed. */
  for (int i = 0; i < 200; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made);
    ++compared;
    if (sum != size) differ("allreduce on a duplicate", i, "th");
    MPI_Comm_free(&made);
  }
}

/* ---- sums that are rounded */
static void rounds(MPI_Comm comm) {
  const int n = 20000;
  double *x = (double*)in, *y = (double*)a, *z = (double*)b;
  for (int i = 0; i < n; ++i) x[i] = sin(i * (rank + 1.0)) * 1e3;
  MPI_Allreduce(x, y, n, MPI_DOUBLE, MPI_SUM, comm);
  PMPI_Allreduce(x, z, n, MPI_DOUBLE, MPI_SUM, comm);
  ++compared;
  for (int i = 0; i < n; ++i)
    if (fabs(y[i] - z[i]) > 1e-12 * 1e3 * size) {
      differ("allreduce, rounded", n, "doubles");
      break;
    }
}

/* ---- unsigned types. MPICH 4.0.2 treats numbers in their upper half as negative, so results are
   compared with the correct values. */
#define WITHOUT_SIGN(T, type)                                            \
  do {                                                                   \
    const T mine = rank == 0 ? (T)-1 : (T)rank, high = (T)-1, low = 1;   \
    T most = 0, least = 0;                                               \
    MPI_Allreduce(&mine, &most, 1, type, MPI_MAX, MPI_COMM_WORLD);       \
    MPI_Allreduce(&mine, &least, 1, type, MPI_MIN, MPI_COMM_WORLD);      \
    same(&most, &high, sizeof most, "allreduce, maximum", 1, #type);     \
    same(&least, &low, sizeof least, "allreduce, minimum", 1, #type);    \
  } while (0)

static void without_sign(void) {
  WITHOUT_SIGN(unsigned char, MPI_UNSIGNED_CHAR);
  WITHOUT_SIGN(unsigned short, MPI_UNSIGNED_SHORT);
  WITHOUT_SIGN(unsigned, MPI_UNSIGNED);
  WITHOUT_SIGN(unsigned long, MPI_UNSIGNED_LONG);
  WITHOUT_SIGN(unsigned long long, MPI_UNSIGNED_LONG_LONG);
  WITHOUT_SIGN(uint8_t, MPI_UINT8_T);
  WITHOUT_SIGN(uint16_t, MPI_UINT16_T);
  WITHOUT_SIGN(uint32_t, MPI_UINT32_T);
  WITHOUT_SIGN(uint64_t, MPI_UINT64_T);
}

/* Ranks that disagree each get an error from the communicator's error handler. */
static int disagree(void) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0, x[2] = {0}, y[2] = {0};
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int error = MPI_Allreduce(x, y, rank == 1 ? 2 : 1, MPI_INT, MPI_SUM, comm);
  if (error != MPI_SUCCESS) MPI_Error_string(error, text, &length);
  printf("rank %d: %s\n", rank, text);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* the others continue */
  return error == MPI_SUCCESS || sum != size * (size - 1) / 2;
}

int main(int argc, char** argv) {
  int provided;
  const char* mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "threads") == 0)
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  else
    MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (strcmp(mode, "disagree") == 0) {
    wrong = disagree();
    MPI_Finalize();
    return wrong;
  }
  const size_t most = (size_t)kMost * 16 * kRanks;
  in = malloc(most);
  a = malloc(most);
  b = malloc(most);
  fill_types();
  on(MPI_COMM_WORLD);
  if (strcmp(mode, "short") != 0) {
    requests(MPI_COMM_WORLD);
    communicators();
    rounds(MPI_COMM_WORLD);
    without_sign();
  }
  long all = 0;
  int bad = 0;
  MPI_Reduce(&compared, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Allreduce(&wrong, &bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && !bad) printf("right: %ld comparisons\n", all);
  free(in);
  free(a);
  free(b);
  MPI_Finalize();
  return bad != 0;
}
