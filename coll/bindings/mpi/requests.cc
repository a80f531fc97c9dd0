// Requests of MPI for collectives that weft has under way, and MPI's calls that wait for requests.
//
// A request is a generalized one (MPI 4.0, chapter 13.2), so that every call of MPI takes it. It
// ends when weft has been seen to be done: by the calls below, which look at weft and at MPI in
// turn. The progress thread moves weft's collectives while the program is in other calls of MPI.
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
};

std::mutex mutex;
std::vector<Open*> open;  // under `mutex`
std::atomic<std::size_t> nopen{0};

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

// Calls `look`, which sets a flag, until the flag is set or the call fails.
template <class Look>
int look_until(const Look& look) {
  for (;;) {
    advance();
    int over = 0;
    if (const int error = look(over); error != MPI_SUCCESS || over) return error;
    yield_core();
  }
}

}  // namespace

int Running::end() {
  if (!waits_) status_ = is_batch_ ? batch_.wait() : request_.wait();
  if (status_.ok()) {
    for (std::size_t i = 0; i < noutputs_; ++i) outputs_[i]->unpack();
    if (result_bytes_) std::memcpy(result_to_, result_.get(), result_bytes_);
  }
  return answer(comm_, status_);
}

int hand_out(Running* running, MPI_Request* request) {
  keep_moving();
  auto one = std::make_unique<Open>();
  one->running.reset(running);
  const int error = PMPI_Grequest_start(query, release, cancel, one.get(), &one->request);
  if (error != MPI_SUCCESS) return error;
  *request = one->request;
  const std::lock_guard lock(mutex);
  open.push_back(one.release());
  nopen.store(open.size(), std::memory_order_release);
  return MPI_SUCCESS;
}

void advance() {
  if (none_open()) return;
  std::vector<Open*> over;
  {
    const std::lock_guard lock(mutex);
    std::erase_if(open, [&](Open* one) {
      const bool done = one->running->test();
      if (done) over.push_back(one);
      return done;
    });
    nopen.store(open.size(), std::memory_order_release);
  }
  for (Open* one : over) {
    one->error = one->running->end();
    one->running.reset();
    PMPI_Grequest_complete(one->request);  // may release `one`
  }
}

void finish_all() {
  while (!none_open()) {
    advance();
    yield_core();
  }
}

}  // namespace weft::mpi

using namespace weft::mpi;  // NOLINT: MPI's names are global

extern "C" {

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (none_open()) return PMPI_Wait(request, status);
  return look_until([&](int& over) { return PMPI_Test(request, &over, status); });
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  advance();
  return PMPI_Test(request, flag, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  if (none_open()) return PMPI_Waitall(count, requests, statuses);
  return look_until([&](int& over) { return PMPI_Testall(count, requests, &over, statuses); });
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  advance();
  return PMPI_Testall(count, requests, flag, statuses);
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  if (none_open()) return PMPI_Waitany(count, requests, index, status);
  return look_until([&](int& over) { return PMPI_Testany(count, requests, index, &over, status); });
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  advance();
  return PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Waitsome(int count, MPI_Request requests[], int* done, int indices[],
                 MPI_Status statuses[]) {
  if (none_open()) return PMPI_Waitsome(count, requests, done, indices, statuses);
  return look_until([&](int& over) {
    const int error = PMPI_Testsome(count, requests, done, indices, statuses);
    over = *done != 0;  // MPI_UNDEFINED: there is no active request
    return error;
  });
}

int MPI_Testsome(int count, MPI_Request requests[], int* done, int indices[],
                 MPI_Status statuses[]) {
  advance();
  return PMPI_Testsome(count, requests, done, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  advance();
  return PMPI_Request_get_status(request, flag, status);
}
}
