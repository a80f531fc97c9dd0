// State that the parts of libweft_mpi.so share: the World of this process, the communicators of MPI
// that weft serves, and the counts of calls by weft and by MPI.
//
// This library defines the names of MPI; each call goes to weft or to the same name with a P in
// front, the profiling interface of the MPI standard (MPI 4.0, chapter 15).
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "coll/api/communicator.h"

namespace weft::mpi {

// Whether weft or MPI runs a call; if MPI, the reason.
enum class Way : std::uint8_t {
  kWeft,
  kOff,           // weft is off, or has not started
  kCommunicator,  // weft does not serve it: an intercommunicator, or created by some ranks only
  kAlone,         // a communicator of one rank
  kType,          // an element type that weft does not reduce
  kOperator,      // a user's operator, or one that weft lacks
  kArgument,      // an argument that MPI rejects
  kNotOffered,    // weft has no such collective
};
inline constexpr std::size_t kWays = 8;

// The calls of one function of MPI so far. One static object per function; thread-safe.
class Count {
 public:
  explicit Count(const char* function);
  void add(Way way) { of_[static_cast<std::size_t>(way)].fetch_add(1, std::memory_order_relaxed); }

 private:
  friend void print_counts();
  const char* const function_;
  std::array<std::atomic<std::uint64_t>, kWays> of_{};
};

// ---- weft's lifetime in this process (library.cc)
// Ends the program, with a message, if it runs another MPI than this library was built for.
void check_mpi();
// Creates the World of MPI_COMM_WORLD after PMPI_Init. If weft cannot start on every rank, all
// ranks use MPI, and one line prints the reason. Never fails the program.
void start();
// Ends weft before PMPI_Finalize: finishes open requests, and prints the counts if requested.
void finish();
// The communicator that serves `comm`; null: none, and `way` is the reason.
Communicator* serving(MPI_Comm comm, Way& way);
// Whether weft can return requests. The same on all ranks.
bool hands_out();
// Makes weft serve `made`, which a call over all ranks of `parent` has created (MPI_COMM_NULL: not
// on this rank). Every rank of `parent` calls it. Returns what the MPI call returned.
int adopt(int returned, MPI_Comm parent, const MPI_Comm* made);
// What a call over `comm` returns: MPI_SUCCESS or, for a failure, what the error handler of `comm`
// returns for an error with the failure's text.
int answer(MPI_Comm comm, const Status& status);
void print_counts();
// Starts a thread that progresses weft's calls while the program makes no calls.
void keep_moving();

// A communicator of this rank alone, with MPI_ERRORS_RETURN.
MPI_Comm own_communicator();

// ---- open requests (requests.cc)
class Running;
// Returns an MPI request that completes when `running` has ended. If `running` has failed already,
// returns what the error handler returns.
int hand_out(std::unique_ptr<Running> running, MPI_Request* request);
// Completes the open requests whose collectives are over, and returns how many. Does nothing in MPI
// calls that weft makes.
int advance();
// Makes MPI call advance() wherever MPI waits or, if !on, stops these calls. Returns whether this
// MPI supports it.
bool watch_from_mpi(bool on);
// Lets MPI progress its own calls.
void move_mpi();
// Called before the program frees `comm`: open requests no longer use it.
void leave(MPI_Comm comm);
// Waits for all open requests.
void finish_all();

}  // namespace weft::mpi
