// The Work of a call: its tensors, its requests in weft, and the work after the requests are over.
// A Work does not identify its call.
#pragma once

#include <ATen/core/ivalue.h>
#include <weft.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "device.h"
#include "hooks.h"

namespace weft_torch {

// A call of a group, for errors and profiles.
struct CallOf {
  const char* name;   // "all_reduce"
  const char* title;  // "weft:all_reduce", never freed
  c10d::OpType type;
  int rank;
  std::uint64_t sequence;
  std::chrono::milliseconds timeout;
  // PyTorch's global rank of each rank of the group; null: the group's ranks are global ranks.
  std::shared_ptr<const std::vector<std::uint64_t>> global_ranks;
  std::shared_ptr<Hooks> hooks;
};

// The exception of a call that failed: a DistBackendError that names the rank. A timeout has
// PyTorch's wording.
std::exception_ptr failure_of(const CallOf& call, weft_result_t result, int rank, const char* text);

// A call's requests in flight. They outlive a Work whose owner does not wait.
struct Pending {
  std::vector<weft_request_t*> requests;
  std::vector<at::Tensor> kept;                // everything that weft reads or writes
  std::vector<std::shared_ptr<void>> buffers;  // memory that is not in tensors
  std::function<void()> at_end;                // copies results to their destination

  // Calls `done` once, on any thread, when all requests are over and at_end() has run.
  using Done = std::function<void(weft_result_t, int rank, const std::string& text)>;
  static void when_over(std::shared_ptr<Pending> pending, Done done);
};

class WeftWork : public c10d::Work {
 public:
  WeftWork(const CallOf& call, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs);
  // Requests in flight continue without the Work.
  ~WeftWork() override;

  // Sets the requests in flight; later calls of this Work wait for them.
  void under_way(std::shared_ptr<Pending> pending);
  // Marks the Work as over for the host. `end` is the device's remaining work, for which wait()
  // makes the caller's stream wait. end() follows.
  void on_device(std::shared_ptr<DeviceEnd> end) { device_end_ = std::move(end); }
  // Ends the Work, which has no requests in flight: a call that is over, a message that has arrived
  // (from `source`), a failure.
  void end(std::exception_ptr failure = nullptr, int source = -1);
  const CallOf& call() const { return call_; }
  // Throws the failure of a Work that has ended, if it has one.
  void rethrow() const;

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override { return source_; }
  std::uint64_t getSequencenumber() const override { return call_.sequence; }
  std::uint64_t getCompletionKey() const override { return call_.sequence; }
  std::chrono::milliseconds getTimeout() const override { return call_.timeout; }

 private:
  bool completed() const;
  c10::intrusive_ptr<c10::ivalue::Future> make_future() const;
  void complete(c10::ivalue::Future& future) const;
  // Waits for the requests, or polls them if `ms` is 0; `ms` < 0: without limit. True: over.
  bool drive(std::int64_t ms);

  const CallOf call_;
  const std::vector<at::Tensor> outputs_;
  std::atomic<int> source_{-1};
  std::mutex driving_;                     // held by the thread that waits in weft or polls
  std::shared_ptr<Pending> pending_;       // null: something else ends the Work
  std::shared_ptr<DeviceEnd> device_end_;  // null: a call on the CPU
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace weft_torch
