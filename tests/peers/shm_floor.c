/* A lower bound for collectives among processes of one host: shared cache lines and one copy,
   without a library, matching or checks. Prints "name bytes microseconds" per call and size, like
   mpi_calls.c. Usage: shm_floor PROCESSES */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMost = 64, kSlots = 64, kLarge = 4 << 20 };

/* A message of 8 bytes. `round` is written last. */
struct line {
  _Alignas(128) atomic_long round;
  double value;
};
static struct shared {
  struct line lines[kMost][kSlots]; /* round r of a process is in slot r % slots */
  _Alignas(128) char large[kLarge];
} * shared;
static int n, me, spins_before_yield = 1, slots = 2;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + 1e-3 * (double)t.tv_nsec;
}

static void publish(long round) {
  struct line* l = &shared->lines[me][round % slots];
  l->value = (double)me;
  atomic_store_explicit(&l->round, round, memory_order_release);
}

/* Waits until process `who` has published `round`. */
static double await(int who, long round) {
  struct line* l = &shared->lines[who][round % slots];
  for (int spins = 0; atomic_load_explicit(&l->round, memory_order_acquire) < round;)
    if (++spins % spins_before_yield == 0) sched_yield();
  return l->value;
}

/* Every process publishes, and reads all lines: a barrier, an allgather, an allreduce. */
static void all(long round) {
  publish(round);
  for (int i = 0; i < n; ++i) (void)await(i, round);
}

/* The root publishes without waiting, and the other processes wait for it. After every half of the
   slots, all wait for all, so that no unread slot is overwritten. */
static void bcast(long round) {
  if (round % (slots / 2) == 0) return all(round);
  if (round % n == me)
    publish(round);
  else
    (void)await((int)(round % n), round);
}

/* The other processes copy the root's bytes; then all wait for all. */
static void bcast_large(long round) {
  static char to[kLarge];
  publish(round);
  if (round % n != me) {
    await((int)(round % n), round);
    memcpy(to, shared->large, kLarge);
    __asm__ volatile("" : : "r"(to) : "memory"); /* keep the copy */
  }
  publish(round + 1);
  for (int i = 0; i < n; ++i) await(i, round + 1);
}

static long measure(const char* name, int bytes, void (*call)(long), long first, int times,
                    int rounds) {
  double begin = 0;
  for (long k = -times / 10; k < times; ++k, first += rounds) {
    if (k == 0) begin = now();
    call(first);
  }
  if (me == 0) printf("%s %d %.3f\n", name, bytes, (now() - begin) / times);
  return first;
}

int main(int argc, char** argv) {
  n = argc > 1 ? atoi(argv[1]) : 2;
  if (n < 1 || n > kMost) return fprintf(stderr, "shm_floor: 1 to %d processes\n", kMost), 1;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(shared->large, 1, kLarge);
  for (int i = 1; i < n && me == 0; ++i)
    if (fork() == 0) me = i;
  if (n <= sysconf(_SC_NPROCESSORS_ONLN)) { /* bind to cores, as mpirun does */
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(me, &core);
    sched_setaffinity(0, sizeof core, &core);
    spins_before_yield = 10000;
  }
  long round = measure("barrier", 0, all, 1, n > 2 ? 10000 : 100000, 1);
  round = measure("allgather", 8, all, round, n > 2 ? 10000 : 100000, 1);
  all(round++); /* all slots were read */
  slots = kSlots;
  round = measure("bcast", 8, bcast, round, n > 2 ? 10000 : 100000, 1);
  measure("bcast", kLarge, bcast_large, round, 60, 2);
  if (me != 0) _exit(0);
  while (wait(NULL) > 0) {
  }
  return 0;
}
