// Reads rank and size from PMIx (mpirun, srun --mpi=pmix) and publishes rank 0's address through
// PMIx. Exchanges no other data over PMIx.
#include <fmt/format.h>
#include <pmix.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <memory>

#include "topo/base/mutex.h"
#include "topo/base/thread.h"
#include "transport/job/job_assembly.h"
#include "transport/job/job_environment.h"
#include "transport/job/unique_id.h"
#include "transport/loaded/loaded.h"

namespace weft {
namespace {

constexpr char kKey[] = "weft.root";

void check(pmix_status_t status, const char* what) {
  if (status == PMIX_SUCCESS) return;
  throw Error(fmt::format(
      "PMIx: {} failed: {} ({}); start with `mpirun` or `srun --mpi=pmix`, or use weft launch "
      "(unset PMIX_RANK and PMIX_NAMESPACE to run without PMIx)",
      what, PMIx_Error_string(status), status));
}

// The connection to the PMIx server: opened once, closed when the process exits.
class Client {
 public:
  Client() : owner_(getpid()) {
    // PMIx_Init starts a thread and may block on its server. It runs in a thread with blocked
    // signals: PMIx's thread inherits the signal mask, and the wait here remains interruptible.
    pmix_status_t status = PMIX_ERROR;
    start_thread("the PMIx thread", [&] {
      status = PMIx_Init(&self_, nullptr, 0);
    }).join();
    check(status, "PMIx_Init");
  }
  ~Client() {
    if (getpid() == owner_) PMIx_Finalize(nullptr, 0);  // not in a forked child
  }
  const pmix_proc_t& self() const { return self_; }

 private:
  pid_t owner_;
  pmix_proc_t self_{};
};

struct ValueFree {
  void operator()(pmix_value_t* value) const { PMIX_VALUE_RELEASE(value); }
};
using Value = std::unique_ptr<pmix_value_t, ValueFree>;

pmix_proc_t proc(const Client& client, pmix_rank_t rank) {
  pmix_proc_t p;
  PMIX_LOAD_PROCID(&p, client.self().nspace, rank);
  return p;
}

std::uint32_t job_number(const Client& client, const char* key) {
  const pmix_proc_t job = proc(client, PMIX_RANK_WILDCARD);
  pmix_value_t* raw = nullptr;
  check(PMIx_Get(&job, key, nullptr, 0, &raw), fmt::format("reading {}", key).c_str());
  const Value value(raw);
  if (value->type != PMIX_UINT32) {
    throw Error(
        fmt::format("PMIx: {} has type {}, not uint32", key, PMIx_Data_type_string(value->type)));
  }
  return value->data.uint32;
}

// PMIx_Fence with weft's own deadline, since not all servers honor PMIX_TIMEOUT.
void fence(const Client& client, std::chrono::milliseconds timeout) {
  struct Wait {
    Mutex mutex;
    std::condition_variable_any done;
    bool over WEFT_GUARDED_BY(mutex) = false;
    pmix_status_t status WEFT_GUARDED_BY(mutex) = PMIX_SUCCESS;
    pmix_proc_t job;  // PMIx accesses these two variables until `over`
    pmix_info_t info;
  };
  // Shared with the callback, which may run after the timeout.
  const auto wait = std::make_shared<Wait>();
  auto theirs = std::make_unique<std::shared_ptr<Wait>>(wait);
  const auto callback = [](pmix_status_t status, void* data) {
    const std::unique_ptr<std::shared_ptr<Wait>> w(static_cast<std::shared_ptr<Wait>*>(data));
    const MutexLock lock((*w)->mutex);
    (*w)->status = status;
    (*w)->over = true;
    (*w)->done.notify_all();
  };
  wait->job = proc(client, PMIX_RANK_WILDCARD);
  bool collect = true;
  PMIX_INFO_CONSTRUCT(&wait->info);
  PMIX_INFO_LOAD(&wait->info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
  const pmix_status_t posted = PMIx_Fence_nb(&wait->job, 1, &wait->info, 1, callback, theirs.get());
  if (posted == PMIX_OPERATION_SUCCEEDED) return;
  check(posted, "PMIx_Fence");
  (void)theirs.release();  // from here on the callback owns it
  MutexLock lock(wait->mutex);
  if (!wait->done.wait_for(lock, timeout,
                           [&]() WEFT_REQUIRES(wait->mutex) { return wait->over; })) {
    throw Error(
        fmt::format("PMIx: the fence of {} did not end within {} ms: some ranks did not start "
                    "weft (do all ranks run the same program?)",
                    client.self().nspace, timeout.count()));
  }
  check(wait->status, "PMIx_Fence");
}

std::string publish(bool one_host, JobSpec& spec) {
  const Rendezvous rendezvous = open_rendezvous(one_host ? "127.0.0.1" : own_addresses());
  spec.listen_fd = rendezvous.listen_fd;
  pmix_value_t value;
  PMIX_VALUE_LOAD(&value, rendezvous.text.c_str(), PMIX_STRING);
  const pmix_status_t put = PMIx_Put(PMIX_GLOBAL, kKey, &value);
  PMIX_VALUE_DESTRUCT(&value);
  check(put, "PMIx_Put");
  return rendezvous.text;
}

std::string look_up(const Client& client) {
  const pmix_proc_t root = proc(client, 0);
  pmix_value_t* raw = nullptr;
  check(PMIx_Get(&root, kKey, nullptr, 0, &raw), "reading rank 0's address");
  const Value value(raw);
  if (value->type != PMIX_STRING || value->data.string == nullptr) {
    throw Error("PMIx: rank 0's address is not a string");
  }
  return value->data.string;
}

JobSpec discover(std::chrono::milliseconds timeout) {
  static const Client client;  // finalized at exit
  JobSpec spec;
  spec.launcher = "pmix";
  spec.rank = static_cast<Rank>(client.self().rank);
  spec.size = static_cast<int>(job_number(client, PMIX_JOB_SIZE));
  if (spec.size == 1) return spec;
  const bool one_host =
      job_number(client, PMIX_LOCAL_SIZE) == static_cast<std::uint32_t>(spec.size);
  std::string text;
  if (spec.rank == 0) text = publish(one_host, spec);
  check(PMIx_Commit(), "PMIx_Commit");
  fence(client, timeout);
  if (spec.rank != 0) text = look_up(client);
  read_rendezvous(text, spec);
  return spec;
}

}  // namespace

void read_pmix(JobSpec& spec) {
  if (!pmix_library())
    throw Error(fmt::format("PMIX_RANK={} is set, and PMIx cannot be loaded: {}; install libpmix "
                            "(Debian: libpmix2), or use weft launch",
                            std::getenv("PMIX_RANK"), pmix_library().why_not()));
  // Queries PMIx once, so that every rank calls fence the same number of times, however many jobs
  // it creates.
  static const JobSpec found = discover(spec.timeout);
  const auto timeout = spec.timeout;
  spec = found;
  spec.timeout = timeout;
  if (listen_fd_taken(spec.listen_fd)) spec.listen_fd = -1;
}

}  // namespace weft
