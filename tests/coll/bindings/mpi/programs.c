/* Small MPI programs, most of them from a sentence of the standard (MPI 4.0; each names its
   chapter). Each prints a hash of the results on each rank, and must print the same hash with and
   without weft. The programs do not use weft.
   programs [NAME...]: all programs, or those named. PROGRAMS_SAY=1 prints the hashed values.
   PROGRAMS_ALONE=1: for runs without weft; frees handles late, as Open MPI requires, and omits
   calls that crash MPI libraries. PROGRAMS_END=return, signal, abort: how the last rank ends while
   the others wait. The last line is printed after MPI_Finalize, which a handler at exit calls. */
#include "programs.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int rank, size;
static int say, alone;
static uint64_t hash;
int in[kMost], out[kMost];

void see_bytes(const char* what, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ ((const unsigned char*)data)[i]) * 1099511628211u;
  if (!say) return;
  fprintf(stderr, "%d: %s", rank, what);
  for (size_t i = 0; i < bytes / 4 && i < 16; ++i) fprintf(stderr, " %d", ((const int*)data)[i]);
  fprintf(stderr, "\n");
}
void see(const char* what, int value) { see_bytes(what, &value, sizeof value); }
void see_out(const char* what) { see_bytes(what, out, sizeof out); }
void clear(void) {
  for (int i = 0; i < kMost; ++i) in[i] = 1000 * rank + i, out[i] = -1;
}

/* Every second int of 8. */
MPI_Datatype strided(void) {
  MPI_Datatype every2nd, type;
  MPI_Type_vector(4, 1, 2, MPI_INT, &every2nd);
  MPI_Type_create_resized(every2nd, 0, 8 * sizeof(int), &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&every2nd);
  return type;
}

/* ---- handles that are freed while a call with them is in flight (5.1.9, 6.9.5, 7.4.3) */
static void free_type(void) {
  int ones[16], at[16];
  for (int i = 0; i < size; ++i) ones[i] = 1, at[i] = size - 1 - i;
  for (int which = 0; which < 7; ++which) {
    clear();
    MPI_Request r;
    MPI_Datatype type = strided(), other;
    if (which == 0) MPI_Iallgather(in, 1, type, out, 1, type, WORLD, &r);
    if (which == 1) MPI_Ialltoall(in, 1, type, out, 1, type, WORLD, &r);
    if (which == 2) MPI_Ibcast(rank ? out : in, 3, type, 0, WORLD, &r);
    if (which == 3) MPI_Igather(in, 1, type, out, 1, type, size - 1, WORLD, &r);
    if (which == 4) MPI_Iscatter(in, 1, type, out, 1, type, size - 1, WORLD, &r);
    if (which == 5) MPI_Iallgatherv(in, 1, type, out, ones, at, type, WORLD, &r);
    if (which == 6) MPI_Ialltoallv(in, ones, at, type, out, ones, at, type, WORLD, &r);
    if (!alone) MPI_Type_free(&type);
    MPI_Type_contiguous(3, MPI_CHAR, &other); /* may reuse the freed handle */
    MPI_Type_commit(&other);
    MPI_Wait(&r, NOWHERE);
    if (alone) MPI_Type_free(&type);
    MPI_Type_free(&other);
    see_out("type");
  }
}

static void free_communicator(void) {
  for (int way = 0; way < 2; ++way) {
    MPI_Comm made, later;
    MPI_Request r[3];
    clear();
    MPI_Comm_dup(WORLD, &made);
    MPI_Iallreduce(in, out, 100, MPI_INT, MPI_SUM, made, &r[0]);
    MPI_Ibcast(out + 200, 100, MPI_INT, 0, made, &r[1]);
    MPI_Ibarrier(made, &r[2]);
    if (way == 0 && !alone) MPI_Comm_free(&made);
    MPI_Comm_split(WORLD, 0, -rank, &later);
    MPI_Allreduce(MPI_IN_PLACE, out + 400, 1, MPI_INT, MPI_SUM, later);
    MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
    if (way == 1) MPI_Comm_disconnect(&made);
    if (way == 0 && alone) MPI_Comm_free(&made);
    MPI_Comm_free(&later);
    see_out("communicator");
  }
}

static void add(void* from, void* to, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i) ((int*)to)[i] += ((int*)from)[i];
}
static void free_operator(void) {
  MPI_Op op;
  MPI_Request r;
  clear();
  MPI_Op_create(add, 1, &op);
  MPI_Iallreduce(in, out, 50, MPI_INT, op, WORLD, &r);
#ifndef OPEN_MPI /* does not keep the operator of a pending reduction */
  MPI_Op_free(&op);
#endif
  MPI_Wait(&r, NOWHERE);
  see_out("operator");
}

static void free_group_and_info(void) {
  MPI_Group all, some;
  MPI_Info info;
  MPI_Comm a, b, c;
  int none = 0;
  clear();
  MPI_Comm_group(WORLD, &all);
  MPI_Group_excl(all, size > 1, &none, &some);
  MPI_Comm_create(WORLD, some, &a);
  MPI_Group_free(&all);
  MPI_Group_free(&some);
  MPI_Info_create(&info);
  MPI_Info_set(info, "key", "value");
  MPI_Comm_dup_with_info(WORLD, info, &b);
  MPI_Comm_split_type(b, MPI_COMM_TYPE_SHARED, -rank, info, &c);
  MPI_Info_free(&info);
  if (a != MPI_COMM_NULL) MPI_Allreduce(in, out, 9, MPI_INT, MPI_MAX, a), MPI_Comm_free(&a);
  MPI_Allreduce(in, out + 10, 9, MPI_INT, MPI_BXOR, b);
  MPI_Comm_free(&b);
  MPI_Bcast(in, 9, MPI_INT, 0, c);
  MPI_Comm_free(&c);
  see_bytes("groups", in, 36);
  see_out("groups");
}

/* ---- requests, for any waiting call (15.2: a tool or a language calls PMPI_) */
static void wait_by_other_names(void) {
  for (int way = 0; way < 9; ++way) {
    MPI_Request r[4];
    int flag = 0, i, left = 4, indices[4];
    clear();
    MPI_Irecv(out + 3000, 9, MPI_INT, (rank + 1) % size, 3, WORLD, &r[0]);
    MPI_Iallreduce(in, out, 100, MPI_INT, MPI_SUM, WORLD, &r[1]);
    MPI_Iallgather(in, 10, MPI_INT, out + 1000, 10, MPI_INT, WORLD, &r[2]);
    MPI_Isend(in, 9, MPI_INT, (rank + size - 1) % size, 3, WORLD, &r[3]);
    for (i = 0; way == 0 && i < 4; ++i) PMPI_Wait(&r[i], NOWHERE);
    for (i = 0; way == 1 && i < 4; ++i)
      for (flag = 0; !flag;) PMPI_Test(&r[i], &flag, NOWHERE);
    if (way == 2) PMPI_Waitall(4, r, MPI_STATUSES_IGNORE);
    while (way == 3 && !flag) PMPI_Testall(4, r, &flag, MPI_STATUSES_IGNORE);
    while (way == 4 && left--) PMPI_Waitany(4, r, &i, NOWHERE);
    while (way == 5 && left) PMPI_Testany(4, r, &i, &flag, NOWHERE), left -= flag;
    while (way == 6 && left) PMPI_Waitsome(4, r, &i, indices, MPI_STATUSES_IGNORE), left -= i;
    while (way == 7 && left) PMPI_Testsome(4, r, &i, indices, MPI_STATUSES_IGNORE), left -= i;
    for (i = 0; way == 8 && i < 4; ++i) {
      for (flag = 0; !flag;) MPI_Request_get_status(r[i], &flag, NOWHERE);
      PMPI_Wait(&r[i], NOWHERE);
    }
    for (i = 0; i < 4; ++i) see("null request", r[i] == MPI_REQUEST_NULL);
    see_out("wait");
  }
}

static int query(void* state, MPI_Status* status) {
  (void)state;
  MPI_Status_set_elements(status, MPI_BYTE, 5);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = 3, status->MPI_TAG = 4;
  return MPI_SUCCESS;
}
static int nothing(void* state) { return (void)state, MPI_SUCCESS; }
static int no_cancel(void* state, int complete) { return (void)state, (void)complete, MPI_SUCCESS; }
static void statuses(void) { /* 13.2, 3.7.5: several kinds of requests at once */
  MPI_Request r[4];
  MPI_Status s[4];
  int n, cancelled;
  clear();
  MPI_Grequest_start(query, nothing, no_cancel, NULL, &r[0]);
  MPI_Iallreduce(in, out, 4, MPI_INT, MPI_SUM, WORLD, &r[1]);
  r[2] = MPI_REQUEST_NULL;
  MPI_Irecv(out + 9, 9, MPI_INT, rank, 3, WORLD, &r[3]);
  MPI_Grequest_complete(r[0]);
  MPI_Send(in, 2, MPI_INT, rank, 3, WORLD);
  MPI_Waitall(4, r, s);
  for (int i = 0; i < 4; ++i) {
    if (i != 1) see("source", s[i].MPI_SOURCE), see("tag", s[i].MPI_TAG);
    MPI_Get_count(&s[i], MPI_BYTE, &n);
    MPI_Test_cancelled(&s[i], &cancelled);
    if (i != 1) see("bytes", n);
    see("cancelled", cancelled);
  }
  see_out("statuses");
}

static void many_requests(void) { /* 6.12: many requests, completed in any order */
  enum { kRequests = 60 };
  MPI_Request r[kRequests];
  MPI_Comm other;
  clear();
  MPI_Comm_dup(WORLD, &other);
  for (int i = 0; i < kRequests; ++i) {
    MPI_Comm comm = i % 3 ? WORLD : other;
    if (i % 5 == 0) MPI_Ibarrier(comm, &r[i]);
    else if (i % 5 == 1) MPI_Iscan(in + i, out + i, 1, MPI_INT, MPI_SUM, comm, &r[i]);
    else MPI_Iallreduce(in + i, out + i, 1, MPI_INT, i % 2 ? MPI_MAX : MPI_SUM, comm, &r[i]);
  }
  MPI_Allreduce(in, out + 100, 7, MPI_INT, MPI_MIN, WORLD);
  for (int i = 0; i < kRequests; ++i) {
    int at = rank % 2 ? i : kRequests - 1 - i;
    MPI_Wait(&r[at], NOWHERE);
  }
  MPI_Comm_free(&other);
  see_out("many");
}

/* ---- types */
static void bottom(void) { /* 5.1.5: addresses in the type */
  int a[2] = {rank, rank + 10}, b = rank + 20, lengths[] = {2, 1};
  MPI_Aint at[2];
  MPI_Datatype type;
  clear();
  MPI_Get_address(a, &at[0]);
  MPI_Get_address(&b, &at[1]);
  MPI_Type_create_hindexed(2, lengths, at, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_Allgather(MPI_BOTTOM, 1, type, out, 3, MPI_INT, WORLD);
  MPI_Bcast(MPI_BOTTOM, 1, type, size - 1, WORLD);
  MPI_Type_free(&type);
  see("a", a[0]), see("a", a[1]), see("b", b);
  see_out("bottom");
}

static void layouts(void) { /* 5.1: one signature, a different layout on each rank */
  int sizes[] = {4, 6}, part[] = {2, 3}, begin[] = {1, 2}, lengths[] = {3, 0, 3}, at[] = {9, 0, 2};
  MPI_Datatype type[4];
  MPI_Type_create_subarray(2, sizes, part, begin, MPI_ORDER_C, MPI_INT, &type[0]);
  MPI_Type_indexed(3, lengths, at, MPI_INT, &type[1]);
  MPI_Type_create_hvector(2, 3, -20, MPI_INT, &type[2]); /* backwards */
  MPI_Type_contiguous(6, MPI_INT, &type[3]);
  for (int t = 0; t < 4; ++t) MPI_Type_commit(&type[t]);
  for (int root = 0; root < size; ++root) {
    MPI_Datatype mine = type[(rank + root) % 4];
    clear();
    MPI_Gather(in + 100, 1, mine, out, 6, MPI_INT, root, WORLD);
    MPI_Scatter(in, 6, MPI_INT, out + 500, 1, mine, root, WORLD);
    MPI_Bcast(out + 1000, 2, mine, root, WORLD);
    MPI_Allgather(in + 100, 1, mine, out + 2000, 1, type[3], WORLD);
    MPI_Alltoall(in, 6, MPI_INT, out + 3000, 1, type[rank % 2], WORLD);
    see_out("layouts");
  }
  for (int t = 0; t < 4; ++t) MPI_Type_free(&type[t]);
}

static void nothing_moves(void) { /* 6.2.2: counts of zero, types of no bytes, null buffers */
  MPI_Datatype empty, large;
  int none[16] = {0};
  clear();
  MPI_Type_contiguous(0, MPI_INT, &empty);
  MPI_Type_create_hvector(1 << 15, 1 << 16, 0, MPI_INT, &large); /* 8 GiB in one element */
  MPI_Type_commit(&empty);
  MPI_Type_commit(&large);
  see("bcast", MPI_Bcast(NULL, 0, MPI_INT, 0, WORLD));
  see("bcast", MPI_Bcast(out, 7, empty, 0, WORLD));
  see("bcast", MPI_Bcast(out, 0, large, 0, WORLD));
  see("allreduce", MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, WORLD));
  see("allgather", MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, WORLD));
  see("alltoallv", MPI_Alltoallv(in, none, none, large, out, none, none, large, WORLD));
  see("alltoallv", MPI_Alltoallv(NULL, none, none, MPI_INT, out, none, none, MPI_INT, WORLD));
  see("gatherv", MPI_Gatherv(in, 0, large, out, none, none, large, 0, WORLD));
  MPI_Type_free(&empty);
  MPI_Type_free(&large);
  see_out("nothing");
}

static void arithmetic(void) { /* 6.9.2; unsigned overflow, infinities, logical bytes */
  clear();
  unsigned u[4] = {0xffffffffu, 0x80000000u, 7, (unsigned)rank}, v[4];
  double d[3] = {INFINITY, -1e300, 0.5}, e[3];
  _Bool b[3] = {rank == 0, 1, 0}, c[3];
  uint64_t w[2] = {~0ull - (uint64_t)rank, 5}, x[2];
  MPI_Allreduce(u, v, 4, MPI_UNSIGNED, MPI_PROD, WORLD), see_bytes("prod", v, sizeof v);
  MPI_Allreduce(u, v, 4, MPI_UNSIGNED, MPI_MAX, WORLD), see_bytes("max", v, sizeof v);
  MPI_Allreduce(d, e, 3, MPI_DOUBLE, MPI_MIN, WORLD), see_bytes("min", e, sizeof e);
  MPI_Allreduce(d, e, 3, MPI_DOUBLE, MPI_SUM, WORLD), see_bytes("sum", e, sizeof e);
  MPI_Allreduce(b, c, 3, MPI_C_BOOL, MPI_LAND, WORLD), see_bytes("land", c, sizeof c);
  MPI_Reduce_scatter_block(w, x, 0, MPI_UINT64_T, MPI_SUM, WORLD);
  MPI_Allreduce(w, x, 2, MPI_UINT64_T, MPI_SUM, WORLD), see_bytes("sum", x, sizeof x);
}

static const struct {
  const char* name;
  void (*run)(void);
} programs[] = {{"free_type", free_type},
                {"free_communicator", free_communicator},
                {"free_operator", free_operator},
                {"free_group_and_info", free_group_and_info},
                {"wait_by_other_names", wait_by_other_names},
                {"statuses", statuses},
                {"many_requests", many_requests},
                {"bottom", bottom},
                {"layouts", layouts},
                {"nothing_moves", nothing_moves},
                {"arithmetic", arithmetic},
                {"neighbours", neighbours},
                {"persistent", persistent},
                {"partitioned", partitioned},
                {"large_counts", large_counts},
                {"communicators", communicators},
                {"attributes", attributes},
                {"threads", threads},
                {"in_place", in_place},
                {"wrong_roots", wrong_roots},
                {"wrong_types", wrong_types},
                {"wrong_operators", wrong_operators},
                {"wrong_buffers", wrong_buffers},
                {"handlers", handlers},
                {"wrong_counts", wrong_counts}}; /* needs weft */

static void finalize(void) {
  int initialized;
  MPI_Initialized(&initialized);
  if (!initialized) return;
  MPI_Finalize();
  if (rank == 0) printf("= over\n");
}

int main(int argc, char** argv) {
  int provided;
  uint64_t all[kRanks];
  const char* end = getenv("PROGRAMS_END");
  say = getenv("PROGRAMS_SAY") != NULL;
  alone = getenv("PROGRAMS_ALONE") != NULL;
  if (!end) atexit(finalize);
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(WORLD, &rank);
  MPI_Comm_size(WORLD, &size);
  if (end) {
    MPI_Request r;
    MPI_Allreduce(&rank, out, 1, MPI_INT, MPI_SUM, WORLD);
    MPI_Iallreduce(&rank, out, 1, MPI_INT, MPI_SUM, WORLD, &r);
    if (rank == size - 1 && !strcmp(end, "return")) return 7;
    if (rank == size - 1 && !strcmp(end, "signal")) raise(SIGKILL);
    if (rank == size - 1 && !strcmp(end, "abort")) MPI_Abort(WORLD, 9);
    return MPI_Barrier(WORLD);
  }
  for (size_t p = 0; p < sizeof programs / sizeof programs[0]; ++p) {
    int wanted = argc == 1 && !(alone && programs[p].run == wrong_counts);
    for (int a = 1; a < argc; ++a) wanted |= !strcmp(argv[a], programs[p].name);
    if (!wanted) continue;
    hash = 14695981039346656037u;
    programs[p].run();
    PMPI_Gather(&hash, 8, MPI_BYTE, all, 8, MPI_BYTE, 0, WORLD);
    if (rank) continue;
    printf("= %-20s", programs[p].name);
    for (int r = 0; r < size; ++r) printf(" %016llx", (unsigned long long)all[r]);
    printf("\n");
    fflush(stdout);
  }
  return 0;
}
