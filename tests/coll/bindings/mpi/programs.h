/* Shared by the small MPI programs (programs.c). */
#pragma once
#include <mpi.h>
#include <stdint.h>
#include <string.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#define INIT(NAME) MPIX_##NAME##_init
#else
#define INIT(NAME) MPI_##NAME##_init
#endif

#define WORLD MPI_COMM_WORLD
#define NOWHERE MPI_STATUS_IGNORE
enum { kMost = 4096, kRanks = 16 };
extern int rank, size;
extern int in[kMost], out[kMost];

/* Adds a result to the program's hash. */
void see_bytes(const char* what, const void* data, size_t bytes);
void see(const char* what, int value);
void see_out(const char* what);
void clear(void);            /* other values in `in` on each rank, -1 in `out` */
MPI_Datatype strided(void);  /* every second int of 8; committed */

/* ---- other calls (programs_calls.c) */
void neighbours(void), persistent(void), partitioned(void), large_counts(void), communicators(void);
void attributes(void), threads(void), in_place(void);
/* ---- wrong arguments (programs_wrong.c) */
void wrong_roots(void), wrong_types(void), wrong_operators(void);
void wrong_buffers(void), wrong_counts(void), handlers(void);
