/* Small MPI programs: calls that weft passes to MPI, communicators, attributes, threads. */
#include <pthread.h>
#include <stdlib.h>

#include "programs.h"

static MPI_Comm ring(void) {
  int periodic = 1;
  MPI_Comm made;
  MPI_Cart_create(WORLD, 1, &size, &periodic, 0, &made);
  return made;
}

void neighbours(void) { /* 7.6: blocking and nonblocking, on two topologies */
  int from[] = {(rank + 1) % size, rank}, to[] = {(rank + size - 1) % size, rank};
  int twos[] = {2, 2}, at[] = {0, 3};
  MPI_Aint far[] = {0, 40};
  MPI_Datatype types[] = {MPI_INT, MPI_INT};
  MPI_Comm graph, comms[] = {ring(), MPI_COMM_NULL};
  MPI_Dist_graph_create_adjacent(WORLD, 2, from, MPI_UNWEIGHTED, 2, to, MPI_UNWEIGHTED,
                                 MPI_INFO_NULL, 0, &graph);
  comms[1] = graph;
  for (int c = 0; c < 2; ++c) {
    MPI_Comm comm = comms[c];
    MPI_Request r[5];
    clear();
    MPI_Neighbor_allgather(in, 3, MPI_INT, out, 3, MPI_INT, comm);
    MPI_Neighbor_allgatherv(in, 1, MPI_INT, out + 10, (int[]){1, 1}, at, MPI_INT, comm);
    MPI_Neighbor_alltoall(in, 2, MPI_INT, out + 20, 2, MPI_INT, comm);
    MPI_Neighbor_alltoallv(in, twos, at, MPI_INT, out + 30, twos, at, MPI_INT,
                           comm);
    MPI_Neighbor_alltoallw(in, (int[]){1, 1}, far, types, out + 40, (int[]){1, 1}, far, types,
                           comm);
    MPI_Ineighbor_allgather(in, 3, MPI_INT, out + 100, 3, MPI_INT, comm, &r[0]);
    MPI_Ineighbor_allgatherv(in, 1, MPI_INT, out + 110, (int[]){1, 1}, at, MPI_INT, comm, &r[1]);
    MPI_Ineighbor_alltoall(in, 2, MPI_INT, out + 120, 2, MPI_INT, comm, &r[2]);
    MPI_Ineighbor_alltoallv(in, twos, at, MPI_INT, out + 130, twos, at, MPI_INT,
                            comm, &r[3]);
    MPI_Ineighbor_alltoallw(in, twos, far, types, out + 140, twos, far, types, comm, &r[4]);
    MPI_Waitall(5, r, MPI_STATUSES_IGNORE);
    see_out("neighbours");
    MPI_Comm_free(&comms[c]);
  }
}

void persistent(void) { /* 6.13: created once, started often, among other calls */
  MPI_Request r[5];
  clear();
  INIT(Bcast)(in, 9, MPI_INT, 0, WORLD, MPI_INFO_NULL, &r[0]);
  INIT(Allreduce)(in, out, 20, MPI_INT, MPI_SUM, WORLD, MPI_INFO_NULL, &r[1]);
  INIT(Barrier)(WORLD, MPI_INFO_NULL, &r[2]);
  INIT(Allgather)(in, 2, MPI_INT, out + 100, 2, MPI_INT, WORLD, MPI_INFO_NULL, &r[3]);
  INIT(Exscan)(in, out + 200, 5, MPI_INT, MPI_SUM, WORLD, MPI_INFO_NULL, &r[4]);
  for (int round = 0; round < 5; ++round) {
    MPI_Request other;
    for (int i = 0; i < 20; ++i) in[i] = rank * round + i;
    MPI_Start(&r[0]);
    MPI_Wait(&r[0], NOWHERE);
    MPI_Startall(4, r + 1);
    MPI_Iallreduce(in + 30, out + 300, 5, MPI_INT, MPI_MAX, WORLD, &other);
    if (round % 2) MPI_Wait(&other, NOWHERE);
    MPI_Waitall(4, r + 1, MPI_STATUSES_IGNORE);
    if (round % 2 == 0) MPI_Wait(&other, NOWHERE);
    MPI_Allreduce(in, out + 400, 5, MPI_INT, MPI_SUM, WORLD);
    see_out("persistent");
  }
  for (int i = 0; i < 5; ++i) MPI_Request_free(&r[i]);
}

void partitioned(void) { /* 4.2 */
#if MPI_VERSION >= 4
  MPI_Request r[2], other;
  clear();
  MPI_Psend_init(in, 4, 5, MPI_INT, (rank + 1) % size, 1, WORLD, MPI_INFO_NULL, &r[0]);
  MPI_Precv_init(out, 4, 5, MPI_INT, (rank + size - 1) % size, 1, WORLD, MPI_INFO_NULL, &r[1]);
  for (int round = 0; round < 2; ++round) {
    MPI_Startall(2, r);
    MPI_Iallreduce(in, out + 100, 5, MPI_INT, MPI_SUM, WORLD, &other);
    for (int i = 3; i >= 0; --i) MPI_Pready(i, r[0]);
    MPI_Wait(&other, NOWHERE);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  }
  MPI_Request_free(&r[0]);
  MPI_Request_free(&r[1]);
  see_out("partitioned");
#endif
}

void large_counts(void) { /* 2.5.8: the same calls with MPI_Count */
#if MPI_VERSION >= 4
  MPI_Count n[kRanks];
  MPI_Aint at[kRanks];
  MPI_Request r[3];
  MPI_Datatype type = strided();
  clear();
  for (int i = 0; i < size; ++i) n[i] = i == 1 ? 0 : 3 + i, at[i] = 40 * (size - 1 - i);
  MPI_Bcast_c(rank ? out : in, 7, MPI_INT, 0, WORLD);
  MPI_Allreduce_c(in, out + 100, 9, MPI_INT, MPI_SUM, WORLD);
  MPI_Reduce_c(in, out + 200, 9, MPI_INT, MPI_MAX, size - 1, WORLD);
  MPI_Allgather_c(in, 1, type, out + 300, 4, MPI_INT, WORLD);
  MPI_Allgatherv_c(in, n[rank], MPI_INT, out + 500, n, at, MPI_INT, WORLD);
  MPI_Iscatterv_c(in, n, at, MPI_INT, out + 1500, n[rank], MPI_INT, 0, WORLD, &r[0]);
  MPI_Ireduce_scatter_c(in, out + 2000, n, MPI_INT, MPI_SUM, WORLD, &r[1]);
  MPI_Ialltoall_c(in, 1, type, out + 2500, 1, type, WORLD, &r[2]);
  MPI_Type_free(&type);
  MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
  MPI_Scan_c(in, out + 3000, 9, MPI_INT, MPI_SUM, WORLD);
  see_out("large counts");
#endif
}

void communicators(void) { /* 7.4: groups, halves, and MPI_Comm_create_group */
  MPI_Comm half, inter, all, part, none;
  MPI_Group group;
  int low = rank < (size + 1) / 2, result, range[1][3] = {{0, size - 1, 2}};
  clear();
  MPI_Comm_split(WORLD, low, -rank, &half);
  MPI_Allgather(in, 2, MPI_INT, out, 2, MPI_INT, half);
  MPI_Intercomm_create(half, 0, WORLD, low ? size - 1 : (size + 1) / 2 - 1, 5, &inter);
  MPI_Allgather(in, 2, MPI_INT, out + 100, 2, MPI_INT, inter);
  MPI_Intercomm_merge(inter, low, &all);
  MPI_Allreduce(in, out + 200, 5, MPI_INT, MPI_SUM, all);
  MPI_Comm_compare(all, WORLD, &result), see("compare", result);
  MPI_Comm_group(WORLD, &group);
  MPI_Group_range_incl(group, 1, range, &group);
  if (rank % 2 == 0) {
    MPI_Comm_create_group(WORLD, group, 3, &part);
    MPI_Allreduce(in, out + 300, 5, MPI_INT, MPI_SUM, part);
    MPI_Comm_free(&part);
  }
  MPI_Comm_split(all, rank == 0 ? MPI_UNDEFINED : 0, 0, &none);
  if (none != MPI_COMM_NULL) {
    MPI_Bcast(out + 400, 5, MPI_INT, 0, none);
    MPI_Comm_free(&none);
  }
  MPI_Group_free(&group);
  MPI_Comm_free(&all);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
  see_out("communicators");
}

static int copied, deleted;
static int copy(MPI_Comm c, int key, void* extra, void* value, void* to, int* flag) {
  (void)c, (void)key, (void)extra;
  *(void**)to = value, *flag = 1, ++copied;
  return MPI_SUCCESS;
}
/* A collective call in the deletion of an attribute. */
static int delete(MPI_Comm c, int key, void* value, void* extra) {
  int sum = 0;
  (void)key, (void)extra, (void)value;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, c == MPI_COMM_SELF ? WORLD : c);
  see("sum", sum);
  return ++deleted, MPI_SUCCESS;
}
void attributes(void) { /* 7.7: copied and deleted once each; 11.2.4: on MPI_COMM_SELF */
  int key;
  MPI_Comm made;
  MPI_Comm_create_keyval(copy, delete, &key, NULL);
  MPI_Comm_set_attr(WORLD, key, &key);
  MPI_Comm_dup(WORLD, &made);
  MPI_Comm_free(&made);
  MPI_Comm_delete_attr(WORLD, key);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
  see("copied", copied), see("deleted", deleted);
}

static void* work(void* of) {
  MPI_Comm comm = *(MPI_Comm*)of;
  int sum = 0, gathered[kRanks];
  for (int i = 0; i < 50; ++i) {
    MPI_Request r;
    int mine = rank + sum;
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_BXOR, comm, &r);
    if (i % 2) PMPI_Wait(&r, NOWHERE);
    else MPI_Wait(&r, NOWHERE);
    MPI_Allgather(&mine, 1, MPI_INT, gathered, 1, MPI_INT, comm);
    sum += gathered[size - 1];
  }
  return (void*)(intptr_t)sum;
}
void threads(void) { /* 11.6.2: each thread on its own communicator */
  pthread_t thread[2];
  MPI_Comm comm[2];
  int level;
  MPI_Query_thread(&level);
  for (int t = 0; t < 2; ++t) MPI_Comm_dup(WORLD, &comm[t]);
  for (int t = 0; t < 2; ++t)
    if (level == MPI_THREAD_MULTIPLE) pthread_create(&thread[t], NULL, work, &comm[t]);
  for (int t = 0; t < 2; ++t) {
    void* result;
    if (level == MPI_THREAD_MULTIPLE) pthread_join(thread[t], &result);
    else result = work(&comm[t]);
    see("thread", (int)(intptr_t)result);
    MPI_Comm_free(&comm[t]);
  }
}

void in_place(void) { /* 6.2: every call that supports it, blocking or not */
  int n[kRanks], at[kRanks];
  MPI_Request r;
  for (int i = 0; i < size; ++i) n[i] = i + 1, at[i] = 10 * (size - i);
  clear(), MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, in, 4, MPI_INT, WORLD);
  MPI_Iallgatherv(MPI_IN_PLACE, -7, MPI_DATATYPE_NULL, in + 500, n, at, MPI_INT, WORLD, &r);
  MPI_Wait(&r, NOWHERE);
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, in + 1000, 4, MPI_INT, WORLD);
  for (int i = 0; i < size; ++i) n[i] = 3; /* equal in both directions */
  MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_INT, in + 1500, n, at, MPI_INT, WORLD);
  if (rank == 0) MPI_Gather(MPI_IN_PLACE, 0, MPI_INT, in + 2000, 4, MPI_INT, 0, WORLD);
  else MPI_Gather(in + 2000, 4, MPI_INT, NULL, 0, MPI_INT, 0, WORLD);
  if (rank == 0) MPI_Scatterv(in, n, at, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, 0, WORLD);
  else MPI_Scatterv(NULL, NULL, NULL, MPI_INT, in + 2500, 3, MPI_INT, 0, WORLD);
  MPI_Reduce_scatter(MPI_IN_PLACE, in + 3000, n, MPI_INT, MPI_SUM, WORLD);
  MPI_Scan(MPI_IN_PLACE, in + 3500, 8, MPI_INT, MPI_MAX, WORLD);
  see_bytes("in place", in, 3000 * 4);
  see_bytes("reduced", in + 3000, 12);
  see_bytes("scanned", in + 3500, 32);
}
