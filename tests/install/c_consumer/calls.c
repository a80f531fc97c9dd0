/* Every call of weft.h, from C. The job comes from a launcher, or, with the arguments
 * `FILE RANK SIZE`, from a unique id that rank 0 writes to the file. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

enum { kMostRanks = 8, kMany = 100000 };

static int failures = 0;

#define CHECK(what)                                                                     \
  do {                                                                                  \
    if (!(what)) {                                                                      \
      fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #what, weft_last_error()); \
      ++failures;                                                                       \
    }                                                                                   \
  } while (0)
#define OK(call) CHECK((call) == WEFT_OK)
/* Expects the call to fail with this result, and the text to contain these words. */
#define FAILS(call, result, words)                   \
  do {                                               \
    CHECK((call) == (result));                       \
    CHECK(strstr(weft_last_error(), words) != NULL); \
  } while (0)

static void nap(void) {
  const struct timespec ms = {0, 1000000};
  nanosleep(&ms, NULL);
}

static weft_world_t* world_of_file(const char* file, int rank, int size) {
  weft_unique_id_t id;
  weft_world_t* world = NULL;
  weft_options_t options = WEFT_OPTIONS_INIT;
  FILE* f = NULL;
  char temporary[4096];
  int tries;
  options.timeout_ms = 60000;
  if (rank == 0) {
    if (weft_unique_id_create(&id)) return NULL;
    snprintf(temporary, sizeof temporary, "%s.new", file);
    f = fopen(temporary, "wb");
    if (!f || fwrite(&id, sizeof id, 1, f) != 1 || fclose(f) || rename(temporary, file))
      return NULL;
  } else {
    for (tries = 0; !f && tries < 60000; ++tries) {
      f = fopen(file, "rb");
      if (!f) nap();
    }
    if (!f || fread(&id, sizeof id, 1, f) != 1) return NULL;
    fclose(f);
  }
  if (weft_world_from_id(&id, rank, size, &options, &world)) return NULL;
  /* An id is for one World. */
  if (rank == 0) {
    weft_world_t* second = NULL;
    FAILS(weft_world_from_id(&id, 0, size, NULL, &second), WEFT_SETUP, "has used it");
    CHECK(second == NULL);
  }
  return world;
}

static void collectives(weft_comm_t* comm, int me, int n) {
  int32_t in[kMostRanks], out[kMostRanks], one = me + 1, sum = 0;
  size_t counts[kMostRanks], ones[kMostRanks];
  double half = 0.5, d = 2, dsum = 0;
  weft_op_t op;
  int r, at;
  for (r = 0; r < n; ++r) in[r] = 100 * me + r, counts[r] = (size_t)(r + 1), ones[r] = 1;

  OK(weft_all_reduce(comm, &one, &sum, 1, WEFT_INT32, WEFT_SUM, NULL));
  CHECK(sum == n * (n + 1) / 2);
  OK(weft_all_reduce(comm, &one, &sum, 1, WEFT_INT32, WEFT_MAX, NULL));
  CHECK(sum == n);
  OK(weft_op_create_premul_sum(half, &op));
  OK(weft_all_reduce(comm, &d, &dsum, 1, WEFT_FLOAT64, op, NULL));
  CHECK(dsum == n);
  OK(weft_op_free(op));
  FAILS(weft_all_reduce(comm, &d, &dsum, 1, WEFT_FLOAT64, op, NULL), WEFT_INVALID_ARGUMENT,
        "not an operator");

  OK(weft_all_gather(comm, &one, out, 1, WEFT_INT32, NULL));
  for (r = 0; r < n; ++r) CHECK(out[r] == r + 1);
  OK(weft_reduce_scatter(comm, in, &sum, 1, WEFT_INT32, WEFT_SUM, NULL));
  CHECK(sum == 100 * n * (n - 1) / 2 + n * me);
  sum = one;
  OK(weft_broadcast(comm, &sum, &sum, 1, WEFT_INT32, n - 1, NULL));
  CHECK(sum == n);
  OK(weft_barrier(comm, NULL));
  OK(weft_reduce(comm, &one, &sum, 1, WEFT_INT32, WEFT_PROD, 0, NULL));
  if (me == 0)
    for (r = 1, at = 1; r <= n; ++r) at *= r;
  CHECK(me != 0 || sum == at);
  OK(weft_gather(comm, &one, out, 1, WEFT_INT32, 0, NULL));
  CHECK(me != 0 || out[n - 1] == n);
  OK(weft_scatter(comm, in, &sum, 1, WEFT_INT32, 0, NULL));
  CHECK(sum == me);
  OK(weft_all_to_all(comm, in, out, 1, WEFT_INT32, NULL));
  for (r = 0; r < n; ++r) CHECK(out[r] == 100 * r + me);

  /* Blocks of 1, 2, ... elements; each rank's block has its number. */
  {
    int32_t block[kMostRanks], all[kMostRanks * (kMostRanks + 1) / 2];
    for (r = 0; r <= me; ++r) block[r] = me;
    OK(weft_all_gather_v(comm, block, all, counts, NULL, WEFT_INT32, NULL));
    for (r = 0, at = 0; r < n; at += ++r) CHECK(all[at] == r);
    OK(weft_gather_v(comm, block, all, counts, NULL, WEFT_INT32, n - 1, NULL));
    OK(weft_scatter_v(comm, all, block, counts, NULL, WEFT_INT32, n - 1, NULL));
    CHECK(block[me] == me);
    OK(weft_reduce_scatter_v(comm, all, block, counts, NULL, WEFT_INT32, WEFT_MIN, NULL));
    CHECK(block[me] == me);
  }
  OK(weft_all_to_all_v(comm, in, ones, NULL, out, ones, NULL, WEFT_INT32, NULL));
  for (r = 0; r < n; ++r) CHECK(out[r] == 100 * r + me);
}

static void note(void* argument, weft_result_t result, int rank, const char* text) {
  *(int*)argument = result == WEFT_OK && rank == WEFT_NO_RANK && *text == 0 ? 1 : -1;
}

static void requests(weft_comm_t* comm, int me, int n) {
  const int next = (me + 1) % n, before = (me + n - 1) % n;
  weft_request_t* request[2];
  int32_t got = -1, mine = me, sum = 0, all[kMostRanks];
  int over = 0, heard = 0;
  void* memory = NULL;
  float* many;
  if (n > 1) {
    OK(weft_recv(comm, &got, 1, WEFT_INT32, before, &request[0]));
    OK(weft_send(comm, &mine, 1, WEFT_INT32, next, &request[1]));
    while (!over) OK(weft_test(&request[0], &over));
    OK(weft_wait(&request[1]));
    CHECK(request[0] == NULL && request[1] == NULL && got == before);
    if (me == 0) OK(weft_send(comm, &mine, 1, WEFT_INT32, 1, NULL));
    if (me == 1) OK(weft_recv(comm, &got, 1, WEFT_INT32, 0, NULL));
  }
  /* A group: messages around, also to itself, and two collectives. */
  got = -1;
  OK(weft_group_start());
  OK(weft_send(comm, &mine, 1, WEFT_INT32, next, NULL));
  OK(weft_recv(comm, &got, 1, WEFT_INT32, before, NULL));
  OK(weft_group_start());
  OK(weft_all_reduce(comm, &mine, &sum, 1, WEFT_INT32, WEFT_SUM, NULL));
  OK(weft_group_end(NULL));
  OK(weft_all_gather(comm, &mine, all, 1, WEFT_INT32, NULL));
  FAILS(weft_barrier(comm, request), WEFT_INVALID_ARGUMENT, "weft_group_end() for one");
  OK(weft_group_end(&request[0]));
  OK(weft_wait(&request[0]));
  CHECK(got == before && sum == n * (n - 1) / 2 && all[n - 1] == n - 1);

  OK(weft_alloc(kMany * sizeof(float), &memory));
  many = memory;
  many[kMany - 1] = 1;
  OK(weft_all_reduce(comm, many, many, kMany, WEFT_FLOAT32, WEFT_SUM, &request[0]));
  over = 0;
  while (!over) OK(weft_wait_for(&request[0], 1000, &over));
  CHECK(many[0] == 0 && many[kMany - 1] == (float)n);
  OK(weft_barrier(comm, &request[0]));
  OK(weft_request_on_done(&request[0], note, &heard));
  CHECK(request[0] == NULL);
  OK(weft_barrier(comm, NULL));
  CHECK(heard == 1);
  weft_free(memory);
}

static void compressed(weft_comm_t* comm, int n) {
  weft_comm_t* bound = NULL;
  weft_request_t* request = NULL;
  float in[700], out[700], residual[700] = {0};
  double bound_8 = 0, bound_f = 0;
  int i;
  for (i = 0; i < 700; ++i) in[i] = (float)(i % 100) - 50;
  OK(weft_error_bound(WEFT_INT8_BLOCKS, WEFT_ALL_REDUCE, WEFT_SUM, n, &bound_8));
  OK(weft_error_bound(WEFT_FP8_BLOCKS, WEFT_ALL_REDUCE, WEFT_AVG, n, &bound_f));
  CHECK(bound_8 > 0.0078 * n && bound_8 < 0.008 * n && bound_f > 0.12 && bound_f < 0.13);
  OK(weft_comm_compressed(comm, WEFT_INT8_BLOCKS, residual, &bound));
  OK(weft_all_reduce(bound, in, out, 700, WEFT_FLOAT32, WEFT_SUM, NULL));
  for (i = 0; i < 700; ++i)
    CHECK(out[i] - n * in[i] <= 50 * bound_8 && n * in[i] - out[i] <= 50 * bound_8);
  OK(weft_all_reduce(bound, in, out, 700, WEFT_FLOAT32, WEFT_AVG, &request));
  weft_comm_free(bound);
  OK(weft_wait(&request));
  OK(weft_comm_compressed(comm, WEFT_FP8_BLOCKS, NULL, &bound));
  OK(weft_all_reduce(bound, in, out, 700, WEFT_FLOAT32, WEFT_AVG, NULL));
  for (i = 0; i < 700; ++i) CHECK(out[i] - in[i] <= 50 * bound_f && in[i] - out[i] <= 50 * bound_f);
  FAILS(weft_all_reduce(bound, in, out, 350, WEFT_FLOAT64, WEFT_SUM, NULL), WEFT_INVALID_ARGUMENT,
        "only float is compressed");
  weft_comm_free(bound);
  FAILS(weft_comm_compressed(comm, (weft_codec_t)7, NULL, &bound), WEFT_INVALID_ARGUMENT,
        "7 is not a weft_codec_t");
  FAILS(weft_error_bound(WEFT_INT8_BLOCKS, WEFT_BROADCAST, WEFT_SUM, n, &bound_8), WEFT_SETUP,
        "broadcast is never compressed");
}

static void communicators(weft_world_t* world, weft_comm_t* comm, int me, int n) {
  weft_comm_t *part = NULL, *other = NULL;
  int ranks[2] = {0, 0}, value = 0;
  char name[8];
  OK(weft_comm_split(comm, me % 2, -me, &part));
  OK(weft_comm_world_rank(part, 0, &value));
  CHECK(value % 2 == me % 2 && value >= n - 2);
  weft_comm_free(part);
  OK(weft_comm_split(comm, me == 0 ? WEFT_NO_COLOR : 1, 0, &part));
  CHECK((part == NULL) == (me == 0));
  weft_comm_free(part);
  OK(weft_comm_duplicate(comm, &part));
  ranks[0] = n - 1;
  OK(weft_comm_subset(part, ranks, me == n - 1, &other));
  CHECK((other != NULL) == (me == n - 1));
  if (other) OK(weft_comm_size(other, &value));
  CHECK(!other || value == 1);
  weft_comm_free(other);
  weft_comm_free(part);
  OK(weft_host_comm(world, &part));
  OK(weft_barrier(part, NULL));
  weft_comm_free(part);
  OK(weft_rail_comm(world, &part));
  weft_comm_free(part);
  OK(weft_comm_set_algorithm(comm, WEFT_ALL_REDUCE, "ring"));
  OK(weft_all_reduce(comm, &me, &value, 1, WEFT_INT32, WEFT_SUM, NULL));
  OK(weft_comm_last_algorithm(comm, name, sizeof name));
  CHECK(n == 1 || strcmp(name, "ring") == 0);
  OK(weft_comm_set_algorithm(comm, WEFT_ALL_REDUCE, "auto"));
  FAILS(weft_comm_set_algorithm(comm, WEFT_ALL_REDUCE, "magic"), WEFT_SETUP, "there are auto");
  compressed(comm, n);
  OK(weft_comm_set_deterministic(comm, 1));
  OK(weft_comm_set_deterministic(comm, 0));
}

static void bad_input(weft_comm_t* comm, int n) {
  weft_world_t* world = NULL;
  weft_unique_id_t id;
  weft_options_t options = WEFT_OPTIONS_INIT;
  weft_request_t* request = NULL;
  int32_t value = 0;
  int over;
  FAILS(weft_world_from_environment(NULL, NULL), WEFT_INVALID_ARGUMENT, "world is NULL");
  FAILS(weft_all_reduce(NULL, &value, &value, 1, WEFT_INT32, WEFT_SUM, NULL), WEFT_INVALID_ARGUMENT,
        "weft_all_reduce: comm is NULL");
  FAILS(weft_all_reduce(comm, NULL, &value, 1, WEFT_INT32, WEFT_SUM, NULL), WEFT_INVALID_ARGUMENT,
        "null");
  FAILS(weft_all_reduce(comm, &value, &value, 1, (weft_dtype_t)99, WEFT_SUM, NULL),
        WEFT_INVALID_ARGUMENT, "99 is not a weft_dtype_t");
  FAILS(weft_all_reduce(comm, &value, &value, 1, WEFT_INT32, 5, NULL), WEFT_INVALID_ARGUMENT,
        "5 is not an operator");
  FAILS(weft_all_reduce(comm, &value, &value, 1, WEFT_FLOAT32, WEFT_BIT_OR, &request),
        WEFT_INVALID_ARGUMENT, "");
  CHECK(request == NULL);
  FAILS(weft_broadcast(comm, &value, &value, 1, WEFT_INT32, n, NULL), WEFT_INVALID_ARGUMENT,
        "root");
  FAILS(weft_all_gather_v(comm, &value, &value, NULL, NULL, WEFT_INT32, NULL),
        WEFT_INVALID_ARGUMENT, "counts is NULL");
  FAILS(weft_group_end(NULL), WEFT_INVALID_ARGUMENT, "without weft_group_start()");
  FAILS(weft_wait(&request), WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_test(&request, &over), WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_op_free(WEFT_SUM), WEFT_INVALID_ARGUMENT, "0 is not from");

  options.size = 4;
  FAILS(weft_world_from_environment(&options, &world), WEFT_INVALID_ARGUMENT, "WEFT_OPTIONS_INIT");
  options.size = sizeof options;
  options.version = 900;
  FAILS(weft_world_from_environment(&options, &world), WEFT_VERSION_MISMATCH, "weft.h 0.9.0");
  options.version = WEFT_VERSION;
  options.integrity = 7;
  FAILS(weft_world_from_environment(&options, &world), WEFT_INVALID_ARGUMENT, "integrity is 7");
  options.integrity = WEFT_DEFAULT;
  options.timeout_ms = -1;
  FAILS(weft_world_from_environment(&options, &world), WEFT_INVALID_ARGUMENT, "timeout_ms is -1");

  memset(&id, 'x', sizeof id);
  FAILS(weft_world_from_id(&id, 2, 2, NULL, &world), WEFT_INVALID_ARGUMENT, "rank 2 of 2 ranks");
  FAILS(weft_world_from_id(&id, 0, 0, NULL, &world), WEFT_INVALID_ARGUMENT, "rank 0 of 0 ranks");
  FAILS(weft_world_from_id(&id, 0, 2, NULL, &world), WEFT_SETUP, "unique id");
  CHECK(world == NULL);
  CHECK(weft_version() == WEFT_VERSION);
  CHECK(strcmp(weft_result_name(WEFT_PEER_FAILED), "peer failed") == 0);
  CHECK(strcmp(weft_result_name((weft_result_t)99), "not a weft_result_t") == 0);
}

int main(int argc, char** argv) {
  weft_world_t *world = NULL, *next = NULL;
  weft_comm_t* comm = NULL;
  int me = -1, n = 0, former = -1;
  int32_t value = 1;
  if (argc == 4)
    world = world_of_file(argv[1], atoi(argv[2]), atoi(argv[3]));
  else
    OK(weft_world_from_environment(NULL, &world));
  CHECK(world != NULL);
  if (!world) return 1;
  OK(weft_world_comm(world, &comm));
  OK(weft_comm_rank(comm, &me));
  OK(weft_world_size(world, &n));
  collectives(comm, me, n);
  requests(comm, me, n);
  communicators(world, comm, me, n);
  bad_input(comm, n);
  OK(weft_barrier(comm, NULL));

  /* A receive without a sender. */
  if (n > 1) {
    static int32_t never;
    static int heard;
    weft_request_t* request = NULL;
    OK(weft_recv(comm, &never, 1, WEFT_INT32, (me + 1) % n, &request));
    OK(weft_request_set_patient(request));
    OK(weft_request_on_done(&request, note, &heard));
    CHECK(heard == 0);
  }

  /* Rank 0 aborts; all ranks get an error that names it, and continue together. */
  if (n > 1) {
    weft_result_t result = WEFT_OK;
    weft_comm_t* last = NULL;
    int r;
    OK(weft_world_failure(world));
    OK(weft_comm_duplicate(comm, &last));
    if (me != 0) (void)weft_send(last, &value, 1, WEFT_INT32, 0, NULL); /* may return the abort */
    for (r = 1; me == 0 && r < n; ++r) OK(weft_recv(last, &value, 1, WEFT_INT32, r, NULL));
    if (me == 0) weft_world_abort(world, "enough");
    while (result == WEFT_OK)
      result = weft_all_reduce(comm, &value, &value, 1, WEFT_INT32, WEFT_SUM, NULL);
    FAILS(result, WEFT_ABORTED, "rank 0 aborted: enough");
    CHECK(weft_last_error_rank() == 0);
    FAILS(weft_world_failure(world), WEFT_ABORTED, "enough");
    OK(weft_world_shrink(world, &next));
    FAILS(weft_world_rank(world, &former), WEFT_SETUP, "shrink()");
    weft_comm_free(last);
    weft_comm_free(comm);
    weft_world_free(world);
    world = next;
    OK(weft_world_former_rank(world, me, &former));
    CHECK(former == me);
    FAILS(weft_world_former_rank(world, n, &former), WEFT_INVALID_ARGUMENT, "not a rank");
    OK(weft_world_comm(world, &comm));
    OK(weft_barrier(comm, NULL));
  }
  weft_world_free(world);
  FAILS(weft_barrier(comm, NULL), WEFT_ABORTED, "destroyed");
  weft_comm_free(comm);
  if (failures == 0) printf("rank %d of %d is right\n", me, n);
  return failures != 0;
}
