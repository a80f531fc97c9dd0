// Requests of MPI for collectives that weft has in flight.
//
// A request is a generalized one (MPI 4.0, chapter 13.2), so every call of MPI accepts it. A thread
// of the program completes it after weft has finished: MPI polls weft in every call that waits for
// the request. The standard defines no such hook, but Open MPI and MPICH both have one. The
// progress thread progresses weft's collectives while the program makes no MPI calls.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "coll/bindings/mpi/running.h"
#include "topo/base/yield.h"

namespace weft::mpi {
namespace {

struct Open {
  std::unique_ptr<Running> running;
  MPI_Request request = MPI_REQUEST_NULL;
  int error = MPI_SUCCESS;  // read by MPI once the request is complete
  std::atomic<bool> over{false};
};

std::mutex mutex;
std::vector<Open*> open;  // under `mutex`
std::atomic<std::size_t> nopen{0};
thread_local bool advances = false;  // this thread is in advance() or in weft's wait

int query(void* of, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return static_cast<Open*>(of)->error;
}

int release(void* of) {
  delete static_cast<Open*>(of);
  return MPI_SUCCESS;
}

int cancel(void*, int) { return MPI_SUCCESS; }

bool none_open() { return nopen.load(std::memory_order_acquire) == 0; }

// Removes and returns an open request whose collective is over; null: none.
Open* take_over() {
  const std::lock_guard lock(mutex);
  const auto at = std::ranges::find_if(open, [](Open* one) { return one->running->test(); });
  if (at == open.end()) return nullptr;
  Open* const one = *at;
  open.erase(at);
  nopen.store(open.size(), std::memory_order_release);
  return one;
}

#ifdef OPEN_MPI
// Called by Open MPI's progress engine, which every waiting call runs. It yields the core if no
// callback reports progress.
int progress() { return advance(); }
#else
// MPICH polls its extended generalized requests with these, and makes no other calls meanwhile.
int poll(void*, MPI_Status*) {
  advance();
  move_mpi();
  return MPI_SUCCESS;
}

int wait(int count, void** of, double, MPI_Status*) {
  for (int i = 0; i < count; ++i) {
    const std::atomic<bool>& over = static_cast<Open*>(of[i])->over;
    for (advance(); !over.load(std::memory_order_acquire); poll(nullptr, nullptr)) yield_core();
  }
  return MPI_SUCCESS;
}
#endif

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

#ifdef OPEN_MPI
bool watch_from_mpi(bool on) {
  using Change = int(int (*)());
  auto* const change = find<Change>(on ? "opal_progress_register" : "opal_progress_unregister");
  return change && change(progress) == 0;
}

int start_request(Open* one) {
  return PMPI_Grequest_start(query, release, cancel, one, &one->request);
}
#else
decltype(PMPIX_Grequest_start)* start_extended = nullptr;

bool watch_from_mpi(bool on) {
  if (on) start_extended = find<decltype(PMPIX_Grequest_start)>("PMPIX_Grequest_start");
  return start_extended;
}

int start_request(Open* one) {
  return start_extended(query, release, cancel, poll, wait, one, &one->request);
}
#endif

void move_mpi() {
  const bool before = std::exchange(advances, true);
  int there = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
  advances = before;
}

Running::~Running() {
  if (errhandler_ != MPI_ERRHANDLER_NULL) PMPI_Errhandler_free(&errhandler_);
}

void Running::leave_communicator() {
  PMPI_Comm_get_errhandler(comm_, &errhandler_);
  comm_ = MPI_COMM_NULL;
}

bool Running::failed() {
  if (!waits_) status_ = is_batch_ ? batch_.wait() : request_.wait();
  return !status_.ok();
}

int Running::end() {
  try {
    if (!failed()) {
      for (std::size_t i = 0; i < noutputs_; ++i) outputs_[i]->unpack();
      if (result_bytes_) std::memcpy(result_to_, result_.get(), result_bytes_);
      return MPI_SUCCESS;
    }
  } catch (const std::exception& e) {
    status_ = Status(Code::kInternal, e.what());
  }
  if (comm_ != MPI_COMM_NULL) return answer(comm_, status_);
  MPI_Comm instead;  // another communicator with the same error handler
  PMPI_Comm_split(own_communicator(), 0, 0, &instead);
  PMPI_Comm_set_errhandler(instead, errhandler_);
  const int error = answer(instead, status_);
  PMPI_Comm_free(&instead);
  return error;
}

int hand_out(std::unique_ptr<Running> running, MPI_Request* request) {
  if (running->test()) {
    // In every MPI, a message to MPI_PROC_NULL is complete at once, and so is its request.
    const int error = running->end();
    return error == MPI_SUCCESS
               ? PMPI_Isend(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, own_communicator(), request)
               : error;
  }
  keep_moving();
  auto one = std::make_unique<Open>();
  one->running = std::move(running);
  if (const int error = start_request(one.get()); error != MPI_SUCCESS) return error;
  *request = one->request;
  const std::lock_guard lock(mutex);
  open.push_back(one.release());
  nopen.store(open.size(), std::memory_order_release);
  return MPI_SUCCESS;
}

int advance() {
  if (none_open() || std::exchange(advances, true)) return 0;
  int ended = 0;
  for (; Open* const one = take_over(); ++ended) {
    one->error = one->running->end();
    one->running.reset();
    one->over.store(true, std::memory_order_release);
    MPI_Request request = one->request;
    PMPI_Grequest_complete(request);  // may release `one`
  }
  advances = false;
  return ended;
}

void leave(MPI_Comm comm) {
  const std::lock_guard lock(mutex);
  for (Open* one : open)
    if (one->running->comm() == comm) one->running->leave_communicator();
}

void finish_all() {
  while (!none_open()) {
    advance();
    yield_core();
  }
}

}  // namespace weft::mpi

// The only call in which MPICH does not poll.
extern "C" int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  weft::mpi::advance();
  return PMPI_Request_get_status(request, flag, status);
}
