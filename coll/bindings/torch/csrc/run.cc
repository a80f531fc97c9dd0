// How a call runs, starts or fails; sparse sums; messages.
#include <fmt/format.h>

#include <mutex>
#include <set>

#include "backend.h"
#include "tensors.h"

namespace weft_torch {

using c10d::OpType;

CallOf WeftBackend::call_of(const char* name, OpType type, std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static std::set<std::string>* const titles = new std::set<std::string>;
  const char* title;
  {
    const std::lock_guard lock(mutex);
    title = titles->insert(options_->backend + ":" + name).first->c_str();
  }
  return {name,          title,         type,
          rank_,         ++sequence_,   timeout.count() < 0 ? options_->timeout : timeout,
          global_ranks_, world()->hooks};
}

WeftBackend::WorkPtr WeftBackend::hand_out(const c10::intrusive_ptr<WeftWork>& work) {
  work->call().hooks->started(work);
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

WeftBackend::WorkPtr WeftBackend::run(const char* name, OpType type, const Ending& opts,
                                      const Tensors& inputs, Tensors outputs,
                                      std::vector<Parts> parts) {
  const std::shared_ptr<World> world = this->world();
  const auto work =
      c10::make_intrusive<WeftWork>(call_of(name, type, opts.timeout), inputs, std::move(outputs));
  const auto must = [&](weft_result_t result) {
    if (result == WEFT_OK) return;
    const auto failure =
        failure_of(work->call(), result, weft_last_error_rank(), weft_last_error());
    work->end(failure);
    work->rethrow();
  };
  Tensors all = inputs;
  for (const at::Tensor& t : work->result()) all.push_back(t);
  if (const auto device = gpu_of(name, all)) return run_on_device(work, *device, all, parts);
  const bool limited = opts.timeout.count() >= 0 && opts.timeout != options_->timeout;
  if (!opts.async && !coalescing_ && !limited && parts.size() == 1) {
    must(parts[0].start(world->comm, nullptr));
    if (parts[0].at_end) parts[0].at_end();
    work->end();
    return work;
  }
  const auto pending = std::make_shared<Pending>();
  pending->kept = inputs;
  for (const at::Tensor& t : work->result()) pending->kept.push_back(t);
  pending->requests.reserve(parts.size());
  work->under_way(pending);
  for (Parts& part : parts) {
    for (const at::Tensor& t : part.kept) pending->kept.push_back(t);
    weft_request_t* request = nullptr;
    must(part.start(world->comm, &request));
    pending->requests.push_back(request);
  }
  pending->at_end = [parts = std::move(parts)] {
    for (const Parts& part : parts)
      if (part.at_end) part.at_end();
  };
  if (!opts.async && !coalescing_) try {
      work->wait(limited ? opts.timeout : kNoTimeout);
    } catch (...) {
      // The caller gets its tensors back, so weft must stop using them.
      if (limited)
        give_up(fmt::format("{} of rank {} took longer than its timeout of {} ms", name, rank_,
                            opts.timeout.count()));
      throw;
    }
  return hand_out(work);
}

// When this returns, the call is ordered by the group's stream. A later call reports failures of
// the device.
WeftBackend::WorkPtr WeftBackend::run_on_device(const c10::intrusive_ptr<WeftWork>& work,
                                                at::Device device, Tensors tensors,
                                                const std::vector<Parts>& parts) {
  const std::shared_ptr<World> world = this->world();
  const char* const name = work->call().name;
  TORCH_CHECK(world->devices, "weft: ", name, ": the tensor is on ", device,
              ", and no rank had a GPU when the process group was made");
  for (const Parts& part : parts) tensors.insert(tensors.end(), part.kept.begin(), part.kept.end());
  try {
    work->on_device(world->devices->run(name, device, tensors, [&](weft_comm_t* comm) {
      for (const Parts& part : parts) {
        const weft_result_t result = part.start(comm, nullptr);
        if (result != WEFT_OK)
          std::rethrow_exception(
              failure_of(work->call(), result, weft_last_error_rank(), weft_last_error()));
        if (part.at_end) part.at_end();
      }
    }));
  } catch (...) {
    work->end(std::current_exception());
    throw;
  }
  work->end();
  return hand_out(work);
}

// A message of a GPU's tensor has no header: the i-th send matches the peer's i-th receive.
WeftBackend::WorkPtr WeftBackend::message(const char* name, OpType type, const at::Tensor& t,
                                          int peer) {
  const bool sends = type == OpType::SEND;
  const Elements e = moved(name, t);
  const auto work = c10::make_intrusive<WeftWork>(call_of(name, type, c10d::kUnsetTimeout),
                                                  Tensors{t}, sends ? Tensors{} : Tensors{t});
  return run_on_device(work, t.device(), {t},
                       {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
                         return sends ? weft_send(comm, e.data, e.count, e.type, peer, request)
                                      : weft_recv(comm, e.data, e.count, e.type, peer, request);
                       }}});
}

// The sum of sparse COO tensors: all ranks gather the indices and values of all. Runs on the
// calling thread.
WeftBackend::WorkPtr WeftBackend::allreduce_sparse(Tensors& tensors,
                                                   const c10d::AllreduceOptions& opts) {
  const char* const call = "all_reduce";
  at::Tensor& t = tensors.at(0);
  TORCH_CHECK(tensors.size() == 1 && t.layout() == at::kSparse && t.device().is_cpu(),
              "weft: all_reduce takes one sparse tensor, in COO layout and on the CPU");
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM,
              "weft: all_reduce of a sparse tensor takes the operator SUM only");
  const at::Tensor mine = t.coalesce();
  const at::Tensor indices = mine.indices().contiguous(), values = mine.values().contiguous();
  c10d::AllgatherOptions now;
  now.timeout = opts.timeout;
  now.asyncOp = false;
  Tensors count{at::tensor({values.size(0)}, at::kLong)};
  Lists counts(1);
  for (int r = 0; r < size_; ++r) counts[0].push_back(at::empty({1}, at::kLong));
  allgather(counts, count, now)->wait();
  Lists all_indices(1), all_values(1);
  for (int r = 0; r < size_; ++r) {
    const auto n = counts[0][static_cast<std::size_t>(r)].item<std::int64_t>();
    all_indices[0].push_back(at::empty({n, mine.sparse_dim()}, at::kLong));
    auto sizes = values.sizes().vec();
    sizes[0] = n;
    all_values[0].push_back(at::empty(sizes, values.options()));
  }
  (void)reduced(call, values);
  Tensors own_indices{indices.t().contiguous()}, own_values{values};
  allgather(all_indices, own_indices, now)->wait();
  allgather(all_values, own_values, now)->wait();
  const at::Tensor sum = at::sparse_coo_tensor(at::cat(all_indices[0]).t(), at::cat(all_values[0]),
                                               t.sizes(), t.options())
                             .coalesce();
  t.copy_(sum);
  const auto work = c10::make_intrusive<WeftWork>(
      call_of(call, OpType::_ALLREDUCE_SPARSE, opts.timeout), tensors, tensors);
  work->end();
  return hand_out(work);
}

// ---- messages -----------------------------------------------------------------------------

WeftBackend::WorkPtr WeftBackend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& t = only("send", tensors);
  TORCH_CHECK(to >= 0 && to < size_ && to != rank_, "weft: send: rank ", rank_,
              " cannot send to rank ", to, " of a group of ", size_);
  (void)moved("send", t);
  if (!t.device().is_cpu()) {
    TORCH_CHECK(tag == 0, "weft: send: tag ", tag, " of a tensor on ", t.device(),
                ": messages of GPUs have no tags; pass 0");
    return message("send", OpType::SEND, t, to);
  }
  const auto world = this->world();
  const auto work = c10::make_intrusive<WeftWork>(
      call_of("send", OpType::SEND, c10d::kUnsetTimeout), tensors, Tensors{});
  mailbox_->send(t, to, tag, work);
  return hand_out(work);
}

WeftBackend::WorkPtr WeftBackend::recv(Tensors& tensors, int from, int tag) {
  const at::Tensor& t = only("recv", tensors);
  TORCH_CHECK(from >= 0 && from < size_ && from != rank_, "weft: recv: rank ", rank_,
              " cannot receive from rank ", from, " of a group of ", size_);
  (void)moved("recv", t);
  if (!t.device().is_cpu()) {
    TORCH_CHECK(tag == 0, "weft: recv: tag ", tag, " of a tensor on ", t.device(),
                ": messages of GPUs have no tags; pass 0");
    return message("recv", OpType::RECV, t, from);
  }
  const auto world = this->world();
  const auto work = c10::make_intrusive<WeftWork>(
      call_of("recv", OpType::RECV, c10d::kUnsetTimeout), tensors, tensors);
  mailbox_->receive(t, from, tag, work);
  return hand_out(work);
}

WeftBackend::WorkPtr WeftBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& t = only("recv", tensors);
  (void)moved("recv", t);
  TORCH_CHECK(t.device().is_cpu(), "weft: recv from any rank: the tensor is on ", t.device(),
              ", whose messages have a sender that the receiver names; pass src");
  const auto world = this->world();
  const auto work = c10::make_intrusive<WeftWork>(
      call_of("recvAnySource", OpType::RECVANYSOURCE, c10d::kUnsetTimeout), tensors, tensors);
  mailbox_->receive(t, Mailbox::kAnySource, tag, work);
  return hand_out(work);
}

}  // namespace weft_torch
