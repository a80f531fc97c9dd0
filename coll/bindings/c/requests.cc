// Requests and user-defined operators of weft.h. This file is independent of what a request's calls
// do.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>

#include "coll/bindings/c/handles.h"
#include "topo/base/mutex.h"

namespace weft::c {
namespace {

constexpr weft_op_t kFirstMade = 64;  // operators of weft_op_create_premul_sum()

struct MadeOps {
  Mutex mutex;
  std::map<weft_op_t, double> factors WEFT_GUARDED_BY(mutex);
  weft_op_t next WEFT_GUARDED_BY(mutex) = kFirstMade;
};
MadeOps& made_ops() {
  static auto* const all = new MadeOps;
  return *all;
}

}  // namespace

Reduction reduction_of(weft_op_t op) {
  if (op >= 0 && op < kRedOps && op != static_cast<int>(RedOp::kPreMulSum))
    return static_cast<RedOp>(op);
  MadeOps& made = made_ops();
  const MutexLock lock(made.mutex);
  const auto found = made.factors.find(op);
  if (found == made.factors.end())
    throw StatusError(
        {Code::kInvalidArgument,
         fmt::format(
             "{} is not an operator: pass WEFT_SUM etc., or one from weft_op_create_premul_sum()",
             op)});
  return premul_sum(found->second);
}

bool over(weft_request& request) {
  bool all = true;
  for (Request& call : request.calls) all = call.test() && all;
  for (Batch& batch : request.messages) all = batch.test() && all;
  return all;
}

weft_result_t end(weft_request_t** request) {
  const std::unique_ptr<weft_request> owner(std::exchange(*request, nullptr));
  Status first;
  const auto take = [&](const Status& status) {
    if (first.ok()) first = status;
  };
  for (Batch& batch : owner->messages) take(batch.wait());
  for (Request& call : owner->calls) take(call.wait());
  return result_of(first);
}

weft_result_t hand_over(std::unique_ptr<weft_request> made, weft_request_t** request) {
  *request = made.release();
  if (over(**request)) {  // an invalid argument is reported at once
    Status failure;
    for (Request& call : (*request)->calls)
      if (failure.ok()) failure = call.wait();
    for (Batch& batch : (*request)->messages)
      if (failure.ok()) failure = batch.wait();
    if (!failure.ok()) {
      delete std::exchange(*request, nullptr);
      return failed(failure);
    }
  }
  return WEFT_OK;
}

}  // namespace weft::c

using weft::c::failed;
using weft::c::guarded;

// ---- operators ----------------------------------------------------------------------------

weft_result_t weft_op_create_premul_sum(double factor, weft_op_t* op) {
  WEFT_C_NOT_NULL(op);
  return guarded([&] {
    auto& all = weft::c::made_ops();
    const weft::MutexLock lock(all.mutex);
    if (all.next == INT32_MAX) all.next = weft::c::kFirstMade;
    while (all.factors.contains(all.next)) ++all.next;
    all.factors[all.next] = factor;
    *op = all.next++;
  });
}

weft_result_t weft_op_free(weft_op_t op) {
  return guarded([&] {
    auto& all = weft::c::made_ops();
    const weft::MutexLock lock(all.mutex);
    if (all.factors.erase(op) == 0)
      return failed(WEFT_INVALID_ARGUMENT,
                    fmt::format("weft_op_free: {} is not from weft_op_create_premul_sum()", op));
    return WEFT_OK;
  });
}

// ---- requests -----------------------------------------------------------------------------

weft_result_t weft_wait(weft_request_t** request) {
  WEFT_C_NOT_NULL(request);
  WEFT_C_NOT_NULL(*request);
  return guarded([&] { return weft::c::end(request); });
}

weft_result_t weft_test(weft_request_t** request, int* over) {
  WEFT_C_NOT_NULL(request);
  WEFT_C_NOT_NULL(*request);
  WEFT_C_NOT_NULL(over);
  return guarded([&] {
    *over = weft::c::over(**request);
    return *over ? weft::c::end(request) : WEFT_OK;
  });
}

weft_result_t weft_wait_for(weft_request_t** request, int64_t ms, int* over) {
  WEFT_C_NOT_NULL(request);
  WEFT_C_NOT_NULL(*request);
  WEFT_C_NOT_NULL(over);
  return guarded([&] {
    using Clock = std::chrono::steady_clock;
    constexpr int64_t kYear = 365LL * 24 * 3600 * 1000;
    const auto until = Clock::now() + std::chrono::milliseconds(std::clamp<int64_t>(ms, 0, kYear));
    for (weft::Request& call : (*request)->calls)
      (void)call.wait_for(std::max<Clock::duration>(until - Clock::now(), Clock::duration::zero()));
    *over = weft::c::over(**request);
    while (!*over && Clock::now() < until) {  // messages of a group
      std::this_thread::yield();
      *over = weft::c::over(**request);
    }
    return *over ? weft::c::end(request) : WEFT_OK;
  });
}

weft_result_t weft_request_set_patient(weft_request_t* request) {
  WEFT_C_NOT_NULL(request);
  return guarded([&] {
    for (weft::Request& call : request->calls) call.set_patient();
  });
}

weft_result_t weft_request_on_done(weft_request_t** request,
                                   void (*done)(void* argument, weft_result_t result, int rank,
                                                const char* text),
                                   void* argument) {
  WEFT_C_NOT_NULL(request);
  WEFT_C_NOT_NULL(*request);
  WEFT_C_NOT_NULL(done);
  return guarded([&] {
    if ((*request)->calls.size() != 1 || !(*request)->messages.empty())
      return failed(WEFT_INVALID_ARGUMENT,
                    "weft_request_on_done: the request of a group has no callback: wait for it");
    const std::unique_ptr<weft_request> owner(std::exchange(*request, nullptr));
    weft::Request& call = owner->calls.front();
    call.on_done([done, argument](const weft::Status& status) {
      done(argument, static_cast<weft_result_t>(status.code()), status.rank(),
           status.ok() ? "" : status.to_string().c_str());
    });
    call.detach();
    return WEFT_OK;
  });
}
