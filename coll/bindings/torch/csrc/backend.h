// The backend: a weft job for each process group, and the calls of c10d::Backend on it.
#pragma once

#include <weft.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "device.h"
#include "hooks.h"
#include "messages.h"
#include "work.h"

namespace weft_torch {

// A job and the communicator of all its ranks.
struct World {
  weft_world_t* world = nullptr;
  weft_comm_t* comm = nullptr;
  weft_comm_t* device_comm = nullptr;  // for calls on GPUs; null: no rank has one
  std::unique_ptr<DeviceCalls> devices;
  std::shared_ptr<Hooks> hooks;
  // Leaves the job together with the other ranks.
  ~World();
};

class WeftBackend : public c10d::Backend {
 public:
  // The ranks find each other by a unique id of weft in the store. options->backend is the
  // backend's name in PyTorch.
  WeftBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
              c10::intrusive_ptr<Options> options);
  ~WeftBackend() override;

  const std::string getBackendName() const override { return options_->backend; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t id) override;

  void abort() override { give_up("abort() of the process group"); }
  // Aborts the calls in flight on all ranks. Thread-safe.
  void give_up(const std::string& reason);
  void shutdown() override;

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<std::vector<at::Tensor>>;
  using Sizes = std::vector<std::int64_t>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  // Sums or averages floats on the CPU, with one byte per value sent (weft_comm_compressed()).
  // residual: undefined, or a tensor of the same length.
  WorkPtr all_reduce_compressed(const at::Tensor& tensor, const std::string& codec, bool average,
                                const std::optional<at::Tensor>& residual, bool async);
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    return all_gather_single(output, input, opts);
  }
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override {
    return all_gather_single_coalesced(outputs, inputs, opts);
  }
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                        const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override {
    return reduce_scatter_single(output, input, opts);
  }
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return reduce_scatter_single_coalesced(outputs, inputs, opts);
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                            Sizes& input_sizes, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                        Sizes& input_sizes, const c10d::AllToAllOptions& opts) override {
    return all_to_all_single(output, input, output_sizes, input_sizes, opts);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // The requests that weft runs for a call, and the work afterwards.
  struct Parts {
    std::function<weft_result_t(weft_comm_t*, weft_request_t**)> start;
    Tensors kept = {};
    std::function<void()> at_end = {};
  };
  // Whether the caller waits, and how long, from the options of any call.
  struct Ending {
    template <typename Opts>
    Ending(const Opts& opts) : timeout(opts.timeout), async(opts.asyncOp) {}  // NOLINT: implicit
    std::chrono::milliseconds timeout;
    bool async;
  };
  CallOf call_of(const char* name, c10d::OpType type, std::chrono::milliseconds timeout);
  WorkPtr run(const char* name, c10d::OpType type, const Ending& opts, const Tensors& inputs,
              Tensors outputs, std::vector<Parts> parts);
  Parts all_reduce_parts(const at::Tensor& t, const c10d::ReduceOp& with);
  Parts all_gather_parts(const Tensors& outputs, const at::Tensor& input);
  Parts all_gather_single_parts(const at::Tensor& output, const at::Tensor& input);
  Parts reduce_scatter_single_parts(const at::Tensor& output, const at::Tensor& input,
                                    const c10d::ReduceOp& with);
  const std::shared_ptr<World>& world() const;
  WorkPtr run_on_device(const c10::intrusive_ptr<WeftWork>& work, at::Device device,
                        Tensors tensors, const std::vector<Parts>& parts);
  WorkPtr message(const char* name, c10d::OpType type, const at::Tensor& t, int peer);
  WorkPtr hand_out(const c10::intrusive_ptr<WeftWork>& work);

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  std::shared_ptr<const std::vector<std::uint64_t>> global_ranks_;
  std::shared_ptr<World> world_;
  std::shared_ptr<Mailbox> mailbox_;
  std::atomic<std::uint64_t> sequence_{0};
  std::uint64_t monitored_ = 0;
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace weft_torch
