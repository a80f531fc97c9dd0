// Waits for weft's requests: on the thread that waits, unless a Future asks for callbacks.
#include "work.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <atomic>
#include <optional>
#include <utility>

namespace weft_torch {

std::exception_ptr failure_of(const CallOf& call, weft_result_t result, int rank,
                              const char* text) {
  std::string said =
      fmt::format("weft: rank {}, {} (call {}): ", call.rank, call.name, call.sequence);
  if (result == WEFT_TIMEOUT)
    said += fmt::format("Timed out, the timeout is {} ms: ", call.timeout.count());
  said += text;
  if (rank >= 0 && call.global_ranks && static_cast<std::size_t>(rank) < call.global_ranks->size())
    said += fmt::format(" (rank {} of this group is global rank {})", rank,
                        (*call.global_ranks)[static_cast<std::size_t>(rank)]);
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  return std::make_exception_ptr(c10::DistBackendError(here, std::move(said)));
}

// ---- requests in flight -------------------------------------------------------------------

namespace {

struct Waiting {
  std::shared_ptr<Pending> pending;
  Pending::Done done;
  std::atomic<std::size_t> left;
  std::mutex mutex;
  weft_result_t result = WEFT_OK;
  int rank = WEFT_NO_RANK;
  std::string text;

  void one(weft_result_t r, int who, const char* why) {
    if (r != WEFT_OK) {
      const std::lock_guard lock(mutex);
      if (result == WEFT_OK) {
        result = r;
        rank = who;
        text = why;
      }
    }
    if (--left > 0) return;
    if (result == WEFT_OK && pending->at_end) pending->at_end();
    done(result, rank, text);
  }
};

void one_over(void* argument, weft_result_t result, int rank, const char* text) {
  const std::unique_ptr<std::shared_ptr<Waiting>> waiting(
      static_cast<std::shared_ptr<Waiting>*>(argument));
  try {
    (*waiting)->one(result, rank, text);
  } catch (const std::exception& e) {  // must not reach weft's threads
    TORCH_WARN("weft: ", e.what());
  }
}

}  // namespace

void Pending::when_over(std::shared_ptr<Pending> pending, Done done) {
  const auto waiting = std::make_shared<Waiting>();
  waiting->done = std::move(done);
  std::vector<weft_request_t*> requests = std::exchange(pending->requests, {});
  waiting->pending = std::move(pending);
  waiting->left = requests.size() + 1;  // one for this function
  for (weft_request_t* request : requests) {
    auto argument = std::make_unique<std::shared_ptr<Waiting>>(waiting);
    if (weft_request_on_done(&request, one_over, argument.get()) == WEFT_OK)
      (void)argument.release();
    else
      waiting->one(WEFT_INTERNAL, WEFT_NO_RANK, weft_last_error());
  }
  waiting->one(WEFT_OK, WEFT_NO_RANK, "");
}

// ---- the Work -----------------------------------------------------------------------------

WeftWork::WeftWork(const CallOf& call, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor> outputs)
    : Work(call.rank, call.type, call.title, inputs), call_(call), outputs_(std::move(outputs)) {}

WeftWork::~WeftWork() {
  if (!pending_ || pending_->requests.empty()) {
    call_.hooks->forget(call_.sequence);
    return;
  }
  Pending::when_over(std::move(pending_), [hooks = call_.hooks, key = call_.sequence](
                                              weft_result_t result, int, const std::string&) {
    if (result == WEFT_OK)
      hooks->completed(key);
    else
      hooks->forget(key);
  });
}

void WeftWork::under_way(std::shared_ptr<Pending> pending) { pending_ = std::move(pending); }

void WeftWork::end(std::exception_ptr failure, int source) {
  source_ = source;
  finish(failure);
  // A Work on a device is over when its event has been queried.
  if (!failure && !device_end_) call_.hooks->completed(call_.sequence);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  if (!future) return;
  if (failure)
    future->setErrorIfNeeded(failure);
  else
    complete(*future);
}

c10::intrusive_ptr<c10::ivalue::Future> WeftWork::make_future() const {
  std::vector<c10::Device> devices;
  if (device_end_) devices.push_back(device_end_->stream.device());
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                  std::move(devices));
}

// A Future of a device records the current streams, and its callbacks continue in their order.
void WeftWork::complete(c10::ivalue::Future& future) const {
  std::optional<c10::StreamGuard> on_stream;
  if (device_end_) on_stream.emplace(device_end_->stream);
  future.markCompleted(c10::IValue(outputs_));
}

bool WeftWork::completed() const {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool WeftWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

void WeftWork::rethrow() const {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    failure = exception_;
  }
  if (!failure) return;
  call_.hooks->look();
  std::rethrow_exception(failure);
}

bool WeftWork::drive(std::int64_t ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  std::exception_ptr failure;
  auto& requests = pending_->requests;
  while (!requests.empty()) {
    weft_request_t*& request = requests.front();
    int over = 1;
    weft_result_t result;
    if (ms < 0) {
      result = weft_wait(&request);
    } else if (ms == 0) {
      result = weft_test(&request, &over);
    } else {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          until - std::chrono::steady_clock::now());
      result = weft_wait_for(&request, left.count(), &over);
    }
    if (!over) return false;
    if (result != WEFT_OK && !failure)
      failure = failure_of(call_, result, weft_last_error_rank(), weft_last_error());
    requests.erase(requests.begin());
  }
  if (!failure && pending_->at_end) pending_->at_end();
  pending_.reset();
  end(failure);
  return true;
}

bool WeftWork::isCompleted() {
  if (completed()) return !device_end_ || device_end_->event.query();
  const std::unique_lock driving(driving_, std::try_to_lock);
  if (driving.owns_lock() && pending_) return drive(0);
  return completed();
}

bool WeftWork::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout != kNoTimeout && timeout.count() >= 0;
  const auto limit = limited ? timeout : call_.timeout;
  bool over = completed();
  if (!over) {
    std::unique_lock driving(driving_);
    if (pending_) {
      over = drive(limited ? std::max<std::int64_t>(1, limit.count()) : -1);
    } else {
      driving.unlock();
      std::unique_lock lock(mutex_);
      over = cv_.wait_for(lock, limit, [this] { return completed_; });
    }
  }
  if (!over) {
    CallOf call = call_;
    call.timeout = limit;
    std::rethrow_exception(failure_of(call, WEFT_TIMEOUT, WEFT_NO_RANK,
                                      "wait() timed out; the call is still in flight"));
  }
  rethrow();
  if (device_end_) {
    const c10::impl::VirtualGuardImpl impl(device_end_->stream.device_type());
    device_end_->event.block(impl.getStream(device_end_->stream.device()));
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> WeftWork::getFuture() {
  const std::lock_guard driving(driving_);
  std::exception_ptr failure;
  bool over;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = make_future();
    over = completed_;
    failure = exception_;
  }
  if (over && failure) future_->setErrorIfNeeded(failure);
  if (over && !failure) complete(*future_);
  if (!over && pending_)
    Pending::when_over(
        std::move(pending_), [self = c10::intrusive_ptr<WeftWork>::reclaim_copy(this)](
                                 weft_result_t result, int rank, const std::string& text) {
          self->end(result == WEFT_OK ? nullptr
                                      : failure_of(self->call_, result, rank, text.c_str()));
        });
  return future_;
}

}  // namespace weft_torch
