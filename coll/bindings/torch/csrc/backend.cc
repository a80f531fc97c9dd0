// The lifetime of a process group's job: set-up through the store, splitting, abort, shutdown.
#include <torch/csrc/python_headers.h>
// Python's header must come first.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "backend.h"

namespace weft_torch {
namespace {

void must(weft_result_t result, const char* what) {
  TORCH_CHECK_WITH(DistBackendError, result == WEFT_OK, "weft: ", what, ": ", weft_last_error());
}

// Several Works as one.
class Together : public c10d::Work {
 public:
  Together(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}
  bool isCompleted() override {
    return std::ranges::all_of(works_, [](const auto& w) { return w->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::ranges::all_of(works_, [](const auto& w) { return w->isSuccess(); });
  }
  bool wait(std::chrono::milliseconds timeout) override {
    std::exception_ptr first;
    for (const auto& w : works_) try {
        w->wait(timeout);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    if (first) std::rethrow_exception(first);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> all;
    for (const auto& w : works_)
      for (const at::Tensor& t : w->result()) all.push_back(t);
    return all;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> list(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (const auto& w : works_) list.push_back(w->getFuture());
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    c10::collectAll(list)->addCallback([future, all = result()](c10::ivalue::Future& ended) {
      try {
        for (const c10::IValue& one : ended.value().toListRef()) one.toFuture()->waitAndThrow();
        future->markCompleted(c10::IValue(all));
      } catch (...) {
        future->setError(std::current_exception());
      }
    });
    return future;
  }

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace

World::~World() {
  // Pending callbacks may need Python's lock, and freeing the World waits for these callbacks.
  PyThreadState* const python =
      Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  if (hooks) hooks->leave();
  devices.reset();
  weft_world_free(world);
  weft_comm_free(device_comm);
  weft_comm_free(comm);
  if (python) PyEval_RestoreThread(python);
}

WeftBackend::WeftBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                         c10::intrusive_ptr<Options> options)
    : Backend(rank, size), store_(store), options_(std::move(options)) {
  if (!options_->global_ranks_in_group.empty())
    global_ranks_ =
        std::make_shared<const std::vector<std::uint64_t>>(options_->global_ranks_in_group);
  auto world = std::make_shared<World>();
  weft_options_t o = WEFT_OPTIONS_INIT;
  o.timeout_ms = std::max<std::int64_t>(1, options_->timeout.count());
  o.progress_thread = WEFT_ON;
  weft_unique_id_t id{};
  if (size == 1 || rank == 0) must(weft_unique_id_create(&id), "the unique id");
  if (size > 1) {
    // A later group of the same name may reuse the store: every rank counts the uses, and gets the
    // same number.
    const auto turn = store->add(fmt::format("weft/turn/{}", rank), 1);
    const std::string key = fmt::format("weft/id/{}", turn);
    if (rank == 0) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(id.bytes);
      store->set(key, std::vector<std::uint8_t>(bytes, bytes + sizeof id.bytes));
    } else {
      store->wait({key}, options_->timeout);
      const std::vector<std::uint8_t> bytes = store->get(key);
      TORCH_CHECK_WITH(DistBackendError, bytes.size() == sizeof id.bytes, "weft: rank ", rank,
                       ": the id in the store has ", bytes.size(), " bytes, not ", sizeof id.bytes,
                       ": is weft_torch the same version on every rank?");
      std::memcpy(id.bytes, bytes.data(), sizeof id.bytes);
    }
  }
  must(weft_world_from_id(&id, rank, size, &o, &world->world), "setting up the process group");
  world->hooks = std::make_shared<Hooks>(world->world);
  must(weft_world_comm(world->world, &world->comm), "setting up the process group");
  // Messages of GPUs and of the CPU must not match: each kind has its own communicator.
  std::uint8_t gpu = at::hasCUDA() ? 1 : 0;
  must(weft_all_reduce(world->comm, &gpu, &gpu, 1, WEFT_UINT8, WEFT_MAX, nullptr),
       "setting up the process group");
  if (gpu) {
    must(weft_comm_duplicate(world->comm, &world->device_comm), "setting up the process group");
    world->devices = std::make_unique<DeviceCalls>(world->device_comm);
  }
  mailbox_ = std::make_shared<Mailbox>(world->comm, size);
  world_ = std::move(world);
}

WeftBackend::~WeftBackend() { shutdown(); }

void WeftBackend::shutdown() {
  coalesced_.clear();
  // Calls in flight use the mailbox until they end, with the World.
  world_.reset();
}

void WeftBackend::give_up(const std::string& reason) {
  const auto world = world_;
  if (!world) return;
  weft_world_abort(world->world, reason.c_str());
  world->hooks->abort();
}

void WeftBackend::registerAbortHook(std::int64_t id, c10d::AbortHook hook) {
  world()->hooks->add(id, std::move(hook));
}

void WeftBackend::registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) {
  world()->hooks->add(id, std::move(hook));
}

// PyTorch may remove its hooks after the end of the group.
void WeftBackend::unregisterAbortHook(std::int64_t id) {
  if (const auto world = world_) world->hooks->remove_abort(id);
}

void WeftBackend::unregisterCompletionHook(std::int64_t id) {
  if (const auto world = world_) world->hooks->remove_completion(id);
}

const std::shared_ptr<World>& WeftBackend::world() const {
  TORCH_CHECK_WITH(DistBackendError, world_, "weft: rank ", rank_,
                   ": this process group has been shut down: make another one");
  return world_;
}

c10d::ErrorType WeftBackend::getError() {
  if (!world_) return c10d::ErrorType::COMM_ERROR;
  switch (weft_world_failure(world_->world)) {
    case WEFT_OK:
      return c10d::ErrorType::SUCCESS;
    case WEFT_TIMEOUT:
      return c10d::ErrorType::TIMEOUT;
    case WEFT_PEER_FAILED:
    case WEFT_ABORTED:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

c10::intrusive_ptr<c10d::Backend> WeftBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<Options>& options) {
  const auto me = std::ranges::find(ranks, rank_);
  if (me == ranks.end()) return nullptr;
  auto mine = c10::make_intrusive<Options>(options_->backend,
                                           options ? options->timeout : options_->timeout);
  for (const int r : ranks) {
    TORCH_CHECK(r >= 0 && r < size_, "weft: split: rank ", r, " is not in this group of ", size_);
    mine->global_ranks_in_group.push_back(global_ranks_
                                              ? (*global_ranks_)[static_cast<std::size_t>(r)]
                                              : static_cast<std::uint64_t>(r));
  }
  if (options) {
    mine->group_name = options->group_name;
    mine->group_desc = options->group_desc;
  }
  return c10::make_intrusive<WeftBackend>(store, static_cast<int>(me - ranks.begin()),
                                          static_cast<int>(ranks.size()), mine);
}

void WeftBackend::startCoalescing() {
  coalescing_ = true;
  coalesced_.clear();
}

WeftBackend::WorkPtr WeftBackend::endCoalescing() {
  coalescing_ = false;
  return c10::make_intrusive<Together>(rank_, std::exchange(coalesced_, {}));
}

// Rank 0 waits for a key of every rank in the store, and publishes the result there. It must not
// hang if another rank hangs, so it uses no communicator.
void WeftBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  using Clock = std::chrono::steady_clock;
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const auto until = Clock::now() + timeout;
  const std::string turn = fmt::format("weft/monitored/{}", monitored_++);
  const auto key = [&](int rank) { return fmt::format("{}/{}", turn, rank); };
  // Polls instead of waiting: a thread that waits blocks the store for others.
  const auto comes = [&](const std::string& name) {
    for (;;) {
      if (store_->check({name})) return true;
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const std::string all = turn + "/all";
  if (rank_ != 0) {
    store_->set(key(rank_), std::vector<std::uint8_t>{1});
    const bool told = comes(all);
    if (told && store_->get(all) == std::vector<std::uint8_t>{1}) return;
    TORCH_CHECK(false, "Rank ", rank_,
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0. Please check rank 0 logs for faulty rank.");
  }
  std::vector<int> missing;
  for (int r = 1; r < size_ && (missing.empty() || wait_all_ranks); ++r) {
    if (timeout.count() == 0 || !comes(key(r))) missing.push_back(r);
    if (timeout.count() == 0) break;
  }
  const bool good = missing.empty();
  store_->set(all, std::vector<std::uint8_t>{static_cast<std::uint8_t>(good ? 1 : 0)});
  if (good) return;
  TORCH_CHECK(timeout.count() > 0, "Rank 0 timed out in monitoredBarrier after 0 ms.");
  TORCH_CHECK(false, missing.size() > 1 ? "Ranks " : "Rank ", c10::Join(", ", missing),
              " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

}  // namespace weft_torch
