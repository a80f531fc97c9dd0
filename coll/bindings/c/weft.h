/* weft's C interface (C99): collectives and messages between the ranks of a job. docs/c.md.
 *
 *   weft_world_t* world;
 *   weft_comm_t* comm;
 *   if (weft_world_from_environment(NULL, &world) || weft_world_comm(world, &comm) ||
 *       weft_all_reduce(comm, in, out, count, WEFT_FLOAT32, WEFT_SUM, NULL))
 *     fprintf(stderr, "%s\n", weft_last_error());
 *
 * Every function that can fail returns a weft_result_t; weft_last_error() of the same thread says
 * what was wrong and what to do. Output arguments are written only on success. Thread-safe;
 * docs/api.md has the rules of order, deadlines and buffers. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 2
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION (WEFT_VERSION_MAJOR * 10000 + WEFT_VERSION_MINOR * 100 + WEFT_VERSION_PATCH)

typedef struct weft_world weft_world_t;     /* a job that has assembled */
typedef struct weft_comm weft_comm_t;       /* a group of the job's ranks */
typedef struct weft_request weft_request_t; /* an asynchronous call */

typedef enum {
  WEFT_OK = 0,
  WEFT_INVALID_ARGUMENT = 1, /* this call cannot work; nothing was sent */
  WEFT_TIMEOUT = 2,          /* a deadline passed, and no rank is known to be dead */
  WEFT_PEER_FAILED = 3,      /* a rank died, stopped or was cut off: weft_last_error_rank() */
  WEFT_TRANSPORT = 4,        /* a device or the kernel reported an error */
  WEFT_MISMATCH = 5,         /* ranks disagree about what they run */
  WEFT_ABORTED = 6,          /* weft_world_abort(), or a World that was freed too early */
  WEFT_CORRUPT = 7,          /* bytes arrived corrupted, repeatedly */
  WEFT_INTERNAL = 8,         /* a bug in weft */
  WEFT_SETUP = 9,            /* a job or a communicator could not be created */
  WEFT_NO_MEMORY = 10,
  WEFT_VERSION_MISMATCH = 11 /* the program was compiled for another version of weft */
} weft_result_t;

typedef enum {
  WEFT_FLOAT32 = 0,
  WEFT_FLOAT64 = 1,
  WEFT_INT32 = 2,
  WEFT_INT64 = 3,
  WEFT_FLOAT16 = 4,
  WEFT_BFLOAT16 = 5,
  WEFT_INT8 = 6,
  WEFT_UINT8 = 7,
  WEFT_INT16 = 8,
  WEFT_UINT16 = 9,
  WEFT_UINT32 = 10,
  WEFT_UINT64 = 11,
  WEFT_BOOL = 12 /* one byte, 0 or 1 */
} weft_dtype_t;

/* An operator: one of these, or one made by weft_op_create_premul_sum(). */
typedef int32_t weft_op_t;
enum {
  WEFT_SUM = 0,
  WEFT_MIN = 1,
  WEFT_MAX = 2,
  WEFT_AVG = 3,
  WEFT_PROD = 4,
  WEFT_BIT_AND = 6,
  WEFT_BIT_OR = 7,
  WEFT_BIT_XOR = 8
};

typedef enum {
  WEFT_ALL_REDUCE = 0,
  WEFT_ALL_GATHER = 1,
  WEFT_REDUCE_SCATTER = 2,
  WEFT_BROADCAST = 3,
  WEFT_BARRIER = 4,
  WEFT_SEND_RECV = 5,
  WEFT_REDUCE = 6,
  WEFT_GATHER = 7,
  WEFT_SCATTER = 8,
  WEFT_ALL_TO_ALL = 9
} weft_collective_t;

#define WEFT_NO_RANK (-1)
#define WEFT_NO_COLOR (-1)

/* ---- errors and versions ------------------------------------------------------------------ */

/* The message of this thread's last failed call; valid until the thread's next call. */
const char* weft_last_error(void);
/* The rank of the World that caused that failure; WEFT_NO_RANK if unknown. */
int weft_last_error_rank(void);
const char* weft_result_name(weft_result_t result);
/* The library's WEFT_VERSION, which may differ from the one this program was compiled with. */
int weft_version(void);

/* ---- jobs ----------------------------------------------------------------------------------- */

/* A switch of the options; WEFT_DEFAULT: the library's default. */
enum { WEFT_DEFAULT = 0, WEFT_ON = 1, WEFT_OFF = 2 };

/* Initialize with WEFT_OPTIONS_INIT. A member that is 0 or NULL selects the library's default. The
 * members are those of WorldOptions, docs/api.md; the WEFT_* variables take precedence. */
typedef struct {
  size_t size;     /* sizeof(weft_options_t) */
  int32_t version; /* WEFT_VERSION of this header */
  int32_t progress_thread;
  const char* transport;
  const char* algorithm;
  const char* cross_rail;
  int64_t timeout_ms;
  int64_t slow_ms;
  double rail_gbps;
  int32_t integrity, failover, spread, counters, deterministic;
  int32_t reserved; /* 0 */
} weft_options_t;
#ifdef __cplusplus
#define WEFT_OPTIONS_INIT \
  { sizeof(weft_options_t), WEFT_VERSION, 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#else
#define WEFT_OPTIONS_INIT \
  { .size = sizeof(weft_options_t), .version = WEFT_VERSION }
#endif

/* Joins the job of the launcher (weft launch, mpirun, srun, torchrun; without one, a job of one
 * rank). `options` may be NULL. */
weft_result_t weft_world_from_environment(const weft_options_t* options, weft_world_t** world);

/* The process that becomes rank 0 creates an id; the program sends its bytes to the other ranks,
 * and every rank calls weft_world_from_id() with it. An id is valid for one World. */
typedef struct {
  char bytes[1024];
} weft_unique_id_t;
weft_result_t weft_unique_id_create(weft_unique_id_t* id);
weft_result_t weft_world_from_id(const weft_unique_id_t* id, int rank, int size,
                                 const weft_options_t* options, weft_world_t** world);

/* Leaves the job together with the other ranks. NULL is allowed. Communicators and requests may be
 * freed later; their calls return WEFT_ABORTED. */
void weft_world_free(weft_world_t* world);

weft_result_t weft_world_rank(const weft_world_t* world, int* rank);
weft_result_t weft_world_size(const weft_world_t* world, int* size);
/* The first failure of any communicator that this rank knows of; WEFT_OK: none. */
weft_result_t weft_world_failure(const weft_world_t* world);
/* Fails every call on every rank: WEFT_ABORTED, this rank and the reason. Async-signal-safe. */
void weft_world_abort(weft_world_t* world, const char* reason);
/* After a failure: creates a World of the surviving ranks, all of which call it. The old World has
 * ended, and must still be freed. */
weft_result_t weft_world_shrink(weft_world_t* world, weft_world_t** next);
/* In a World created by weft_world_shrink(): the rank of `rank` in the previous World. */
weft_result_t weft_world_former_rank(const weft_world_t* world, int rank, int* former);

/* ---- communicators ------------------------------------------------------------------------ */

weft_result_t weft_world_comm(weft_world_t* world, weft_comm_t** comm); /* all ranks */
weft_result_t weft_host_comm(weft_world_t* world, weft_comm_t** comm);  /* all of this host */
weft_result_t weft_rail_comm(weft_world_t* world, weft_comm_t** comm);  /* one rank per host */
void weft_comm_free(weft_comm_t* comm);                                 /* NULL is allowed */

weft_result_t weft_comm_rank(const weft_comm_t* comm, int* rank);
weft_result_t weft_comm_size(const weft_comm_t* comm, int* size);
weft_result_t weft_comm_world_rank(const weft_comm_t* comm, int rank, int* world_rank);

/* Collective over `comm`. A rank in no new communicator (WEFT_NO_COLOR, no ranks) gets NULL. */
weft_result_t weft_comm_split(weft_comm_t* comm, int color, int key, weft_comm_t** part);
weft_result_t weft_comm_duplicate(weft_comm_t* comm, weft_comm_t** copy);
weft_result_t weft_comm_subset(weft_comm_t* comm, const int* ranks, size_t count,
                               weft_comm_t** part);

/* The same communicator, ordered by a CUDA stream (a cudaStream_t; docs/gpu.md). */
weft_result_t weft_comm_on_stream(weft_comm_t* comm, void* stream, weft_comm_t** bound);

/* The same communicator with all_reduce, reduce_scatter and all_gather of WEFT_FLOAT32 that send
 * one byte per value (docs/compression.md). `residual`: NULL, or as many floats as `in` has
 * elements for error feedback, 0 before the first call; must live as long as each call's `in`. */
typedef enum { WEFT_INT8_BLOCKS = 1, WEFT_FP8_BLOCKS = 2 } weft_codec_t;
weft_result_t weft_comm_compressed(weft_comm_t* comm, weft_codec_t codec, float* residual,
                                   weft_comm_t** bound);
/* The largest error of a result of such a call, relative to the largest magnitude that any rank has
 * in the element's block of 64; op: WEFT_SUM or WEFT_AVG. */
weft_result_t weft_error_bound(weft_codec_t codec, weft_collective_t collective, weft_op_t op,
                               int ranks, double* bound);

/* "auto", or an algorithm that `weft explain COLLECTIVE` lists; the same on every rank. */
weft_result_t weft_comm_set_algorithm(weft_comm_t* comm, weft_collective_t collective,
                                      const char* name);
/* Writes the name of the last collective's algorithm, truncated to `bytes` with its final 0. */
weft_result_t weft_comm_last_algorithm(const weft_comm_t* comm, char* name, size_t bytes);
weft_result_t weft_comm_set_deterministic(weft_comm_t* comm, int on);

/* ---- collectives -------------------------------------------------------------------------- */

/* What each call does, and how it is called in place: docs/api.md. Counts are in elements.
 *
 * `request`: NULL: the call blocks until it is over; otherwise it starts, and *request is for
 * weft_wait() or weft_test(). Between weft_group_start() and weft_group_end() it must be NULL. */
weft_result_t weft_all_reduce(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_op_t op, weft_request_t** request);
weft_result_t weft_all_gather(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_request_t** request);
weft_result_t weft_reduce_scatter(weft_comm_t* comm, const void* in, void* out, size_t count,
                                  weft_dtype_t type, weft_op_t op, weft_request_t** request);
weft_result_t weft_broadcast(weft_comm_t* comm, const void* in, void* out, size_t count,
                             weft_dtype_t type, int root, weft_request_t** request);
weft_result_t weft_barrier(weft_comm_t* comm, weft_request_t** request);
weft_result_t weft_reduce(weft_comm_t* comm, const void* in, void* out, size_t count,
                          weft_dtype_t type, weft_op_t op, int root, weft_request_t** request);
weft_result_t weft_gather(weft_comm_t* comm, const void* in, void* out, size_t count,
                          weft_dtype_t type, int root, weft_request_t** request);
weft_result_t weft_scatter(weft_comm_t* comm, const void* in, void* out, size_t count,
                           weft_dtype_t type, int root, weft_request_t** request);
weft_result_t weft_all_to_all(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_request_t** request);

/* Blocks of different sizes. `counts` and `offsets` have one number per rank of the communicator,
 * in elements; offsets NULL: each block follows the one before. They are copied. */
weft_result_t weft_all_gather_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                                const size_t* offsets, weft_dtype_t type, weft_request_t** request);
weft_result_t weft_reduce_scatter_v(weft_comm_t* comm, const void* in, void* out,
                                    const size_t* counts, const size_t* offsets, weft_dtype_t type,
                                    weft_op_t op, weft_request_t** request);
weft_result_t weft_gather_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                            const size_t* offsets, weft_dtype_t type, int root,
                            weft_request_t** request);
weft_result_t weft_scatter_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                             const size_t* offsets, weft_dtype_t type, int root,
                             weft_request_t** request);
weft_result_t weft_all_to_all_v(weft_comm_t* comm, const void* in, const size_t* sent,
                                const size_t* sent_offsets, void* out, const size_t* received,
                                const size_t* received_offsets, weft_dtype_t type,
                                weft_request_t** request);

/* Creates an operator, the sum of the ranks' values times their factors, until weft_op_free(). */
weft_result_t weft_op_create_premul_sum(double factor, weft_op_t* op);
weft_result_t weft_op_free(weft_op_t op);

/* ---- messages ----------------------------------------------------------------------------- */

/* The i-th send to a rank matches that rank's i-th receive from this one. */
weft_result_t weft_send(weft_comm_t* comm, const void* data, size_t count, weft_dtype_t type,
                        int to, weft_request_t** request);
weft_result_t weft_recv(weft_comm_t* comm, void* data, size_t count, weft_dtype_t type, int from,
                        weft_request_t** request);

/* ---- groups of calls ---------------------------------------------------------------------- */

/* Collectives and messages of this thread between the two are recorded, and start together at the
 * end; the messages may be in any order, and a rank may send to itself. Groups nest. `request`:
 * NULL: the end of the outermost group waits for all; otherwise it is one request for all. */
weft_result_t weft_group_start(void);
weft_result_t weft_group_end(weft_request_t** request);

/* ---- requests ----------------------------------------------------------------------------- */

/* A request progresses while a thread of the process waits, tests or is in a blocking call, or
 * always with the progress thread of the options. Only one thread at a time may use it. */

/* Waits, returns the result of the call, frees the request and sets it to NULL. */
weft_result_t weft_wait(weft_request_t** request);
/* Progresses all calls once. If this one is over, sets *over to 1 and goes on like weft_wait();
 * otherwise sets *over to 0 and returns WEFT_OK. */
weft_result_t weft_test(weft_request_t** request, int* over);
/* Like weft_test(), after waiting for the end of the call for at most `ms` milliseconds. */
weft_result_t weft_wait_for(weft_request_t** request, int64_t ms, int* over);
/* For a receive whose message may never arrive: it has no deadline, and freeing the World while it
 * is pending is not a failure. */
weft_result_t weft_request_set_patient(weft_request_t* request);
/* Calls `done` once, when the call is over, on the thread that notices it (at once, if it is over
 * already); the text is valid until `done` returns. The request is freed and set to NULL.
 * `done` may use weft, but must not free the World. */
weft_result_t weft_request_on_done(weft_request_t** request,
                                   void (*done)(void* argument, weft_result_t result, int rank,
                                                const char* text),
                                   void* argument);

/* ---- memory ------------------------------------------------------------------------------- */

/* Page-aligned, zeroed memory that ranks of this machine, and RDMA NICs, read in place. All other
 * memory works, too, and needs no registration. */
weft_result_t weft_alloc(size_t bytes, void** memory);
void weft_free(void* memory); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif /* WEFT_H */
