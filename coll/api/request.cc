// Request: waits for, tests or detaches a task. This file is independent of what kind of task a
// Request holds.
#include <utility>

#include "coll/runtime/core.h"

namespace weft {
namespace {

Status empty_handle() {
  return {Code::kInvalidArgument, "this Request is empty: moved from, detached, or of no task"};
}

}  // namespace

Request::Request(std::shared_ptr<GroupState> group, Task* op)
    : group_(std::move(group)), op_(op), empty_(false) {}
Request::Request(Status status) : status_(std::move(status)), empty_(false) {}
Request::Request(Request&& other) noexcept
    : group_(std::move(other.group_)),
      op_(std::exchange(other.op_, nullptr)),
      status_(std::move(other.status_)),
      empty_(std::exchange(other.empty_, true)) {}
Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  if (op_) (void)wait();
  group_ = std::move(other.group_);
  op_ = std::exchange(other.op_, nullptr);
  status_ = std::move(other.status_);
  empty_ = std::exchange(other.empty_, true);
  return *this;
}
Request::~Request() {
  if (op_) (void)wait();
}

bool Request::unfinished() {
  if (op_ && group_->core->forked()) {
    op_ = nullptr;
    status_ = {Code::kAborted,
               "this Request belongs to the process that made it: a forked child cannot use it"};
  }
  return op_ != nullptr;
}

bool Request::test() {
  if (!unfinished()) return true;
  Core& core = *group_->core;
  CoreLock lock(core.mutex);
  core.waiting.come_by();
  if (!op_->over) {
    core.tasks.progress();
    core.waiting.check_deadline(op_, std::chrono::steady_clock::now());
  }
  core.run_callbacks(lock);
  return op_->over;
}

bool Request::wait_for(std::chrono::nanoseconds time) {
  if (!unfinished()) return true;
  Core& core = *group_->core;
  CoreLock lock(core.mutex);
  constexpr auto kNever = std::chrono::steady_clock::time_point::max();
  const auto now = std::chrono::steady_clock::now();
  return core.waiting.wait_until(op_, time < kNever - now ? now + time : kNever, lock);
}

Status Request::wait() {
  if (empty_) return empty_handle();
  if (unfinished())
    if (Status s = group_->core->waiting.wait(std::exchange(op_, nullptr)); !s.ok())
      status_ = std::move(s);
  return status_;
}

void Request::on_done(std::function<void(const Status&)> call) {
  if (empty_) return call(empty_handle());
  if (unfinished()) {
    const CoreLock lock(group_->core->mutex);
    if (!op_->over) {
      if (!op_->on_done) {
        op_->on_done = std::move(call);
      } else {
        op_->on_done = [first = std::move(op_->on_done), call = std::move(call)](const Status& s) {
          first(s);
          call(s);
        };
      }
      return;
    }
    status_ = op_->status;
  }
  call(status_);
}

void Request::set_patient() {
  if (!unfinished()) return;
  const CoreLock lock(group_->core->mutex);
  op_->patient = true;
}

void Request::detach() {
  empty_ = true;
  if (unfinished()) {
    Task* op = std::exchange(op_, nullptr);
    const CoreLock lock(group_->core->mutex);
    if (op->over) {
      op->release();
    } else {
      op->keep = std::move(group_);
      return;
    }
  }
  group_.reset();
}

}  // namespace weft
