// The calls of c10d::Backend: each says where its bytes are and which call of weft moves them.
#include <fmt/format.h>

#include <functional>
#include <mutex>
#include <set>

#include "backend.h"
#include "tensors.h"

namespace weft_torch {

using c10d::OpType;

// What weft is to do for a call, and what is to be done after it.
struct WeftBackend::Parts {
  std::function<weft_result_t(weft_comm_t*, weft_request_t**)> start;
  Tensors kept = {};
  std::vector<std::shared_ptr<void>> buffers = {};
  std::function<void()> at_end = {};
};

CallOf WeftBackend::call_of(const char* name, OpType type, std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static std::set<std::string>* const titles = new std::set<std::string>;
  const char* title;
  {
    const std::lock_guard lock(mutex);
    title = titles->insert(options_->backend + ":" + name).first->c_str();
  }
  return {name,         title,       type,
          rank_,        ++sequence_, timeout.count() < 0 ? options_->timeout : timeout,
          global_ranks_};
}

WeftBackend::WorkPtr WeftBackend::hand_out(const c10::intrusive_ptr<WeftWork>& work) {
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

template <typename Opts>
WeftBackend::WorkPtr WeftBackend::run(const char* name, OpType type, const Opts& opts,
                                      const Tensors& inputs, Tensors outputs, Parts parts) {
  const std::shared_ptr<World> world = this->world();
  const auto work =
      c10::make_intrusive<WeftWork>(call_of(name, type, opts.timeout), inputs, std::move(outputs));
  const bool limited = opts.timeout.count() >= 0 && opts.timeout != options_->timeout;
  if (!opts.asyncOp && !coalescing_ && !limited) {
    if (const auto result = parts.start(world->comm, nullptr))
      std::rethrow_exception(
          failure_of(work->call(), result, weft_last_error_rank(), weft_last_error()));
    if (parts.at_end) parts.at_end();
    work->end();
    return work;
  }
  auto pending = std::make_shared<Pending>();
  pending->requests.resize(1);
  if (const auto result = parts.start(world->comm, pending->requests.data()))
    std::rethrow_exception(
        failure_of(work->call(), result, weft_last_error_rank(), weft_last_error()));
  pending->kept = std::move(parts.kept);
  for (const at::Tensor& t : inputs) pending->kept.push_back(t);
  for (const at::Tensor& t : work->result()) pending->kept.push_back(t);
  pending->buffers = std::move(parts.buffers);
  pending->at_end = std::move(parts.at_end);
  work->under_way(std::move(pending));
  if (!opts.asyncOp && limited && !coalescing_) try {
      work->wait(opts.timeout);
    } catch (...) {
      // The tensors are the caller's again.
      give_up(fmt::format("{} of rank {} took longer than its timeout of {} ms", name, rank_,
                          opts.timeout.count()));
      throw;
    }
  return hand_out(work);
}

namespace {

const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "weft: ", call, " takes one tensor, not ", tensors.size());
  return tensors.front();
}

void same_type(const char* call, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "weft: ", call,
              ": input and output have the types ", a.scalar_type(), " and ", b.scalar_type());
}

void has(const char* call, const char* what, const at::Tensor& t, std::int64_t numel) {
  TORCH_CHECK(t.numel() == numel, "weft: ", call, ": the ", what, " has ", t.numel(),
              " elements, and ", numel, " are needed");
}

// Elements of a type that travels as bytes count for several.
std::vector<std::size_t> scaled(std::vector<std::size_t> counts, const at::Tensor& t,
                                const Elements& e) {
  const std::size_t by = t.numel() > 0 ? e.count / static_cast<std::size_t>(t.numel()) : 1;
  for (std::size_t& c : counts) c *= by;
  return counts;
}

// The elements of each rank's part of a tensor that is cut along its first dimension.
std::vector<std::size_t> parts_of(const char* call, const char* what, const at::Tensor& t,
                                  const std::vector<std::int64_t>& sizes, int ranks) {
  const std::int64_t rows = t.dim() > 0 ? t.size(0) : t.numel();
  const std::int64_t row = rows > 0 ? t.numel() / rows : 0;
  std::vector<std::size_t> counts;
  if (sizes.empty()) {
    TORCH_CHECK(rows % ranks == 0, "weft: ", call, ": the ", what, " has ", rows, " rows, which ",
                ranks, " ranks cannot share evenly: pass split sizes");
    counts.assign(static_cast<std::size_t>(ranks), static_cast<std::size_t>(rows / ranks * row));
    return counts;
  }
  TORCH_CHECK(sizes.size() == static_cast<std::size_t>(ranks), "weft: ", call, ": ", sizes.size(),
              " split sizes of the ", what, ", for ", ranks, " ranks");
  std::int64_t sum = 0;
  for (const std::int64_t s : sizes) {
    TORCH_CHECK(s >= 0, "weft: ", call, ": a split size of the ", what, " is ", s);
    sum += s;
    counts.push_back(static_cast<std::size_t>(s * row));
  }
  TORCH_CHECK(sum == rows, "weft: ", call, ": the split sizes of the ", what, " add up to ", sum,
              ", and it has ", rows, " rows");
  return counts;
}

}  // namespace

WeftBackend::WorkPtr WeftBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor& t = only("broadcast", tensors);
  const Elements e = moved("broadcast", t);
  const int root = static_cast<int>(opts.rootRank);
  return run("broadcast", OpType::BROADCAST, opts, tensors, tensors,
             {[=](weft_comm_t* comm, weft_request_t** request) {
               return weft_broadcast(comm, e.data, e.data, e.count, e.type, root, request);
             }});
}

WeftBackend::WorkPtr WeftBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor& t = only("all_reduce", tensors);
  if (t.layout() == at::kSparse) return allreduce_sparse(tensors, opts);
  const Elements e = reduced("all_reduce", t);
  const Operator op("all_reduce", opts.reduceOp);
  return run("all_reduce", OpType::ALLREDUCE, opts, tensors, tensors,
             {[e, op = weft_op_t(op)](weft_comm_t* comm, weft_request_t** request) {
               return weft_all_reduce(comm, e.data, e.data, e.count, e.type, op, request);
             }});
}

WeftBackend::WorkPtr WeftBackend::allreduce_coalesced(Tensors& tensors,
                                                      const c10d::AllreduceCoalescedOptions& opts) {
  return together(
      [&] {
        for (at::Tensor& t : tensors) {
          Tensors one{t};
          allreduce(one, opts);
        }
      },
      opts.asyncOp);
}

WeftBackend::WorkPtr WeftBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor& t = only("reduce", tensors);
  const Elements e = reduced("reduce", t);
  const Operator op("reduce", opts.reduceOp);
  const int root = static_cast<int>(opts.rootRank);
  return run("reduce", OpType::REDUCE, opts, tensors, tensors,
             {[e, root, op = weft_op_t(op)](weft_comm_t* comm, weft_request_t** request) {
               return weft_reduce(comm, e.data, e.data, e.count, e.type, op, root, request);
             }});
}

WeftBackend::WorkPtr WeftBackend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& opts) {
  const char* const call = "all_gather_single";
  const Elements in = moved(call, input), out = moved(call, output);
  same_type(call, input, output);
  has(call, "output", output, input.numel() * size_);
  return run(call, OpType::_ALLGATHER_BASE, opts, {input}, {output},
             {[=](weft_comm_t* comm, weft_request_t** request) {
               return weft_all_gather(comm, in.data, out.data, in.count, in.type, request);
             }});
}

WeftBackend::WorkPtr WeftBackend::allgather(Lists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) {
  const char* const call = "all_gather";
  const at::Tensor& input = only(call, inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<std::size_t>(size_),
              "weft: all_gather: the list of outputs needs ", size_, " tensors");
  const auto flat = std::make_shared<Flat>(call, outputs[0], Flat::Use::kWrite);
  const Elements in = moved(call, input), out = moved(call, flat->tensor());
  same_type(call, input, flat->tensor());
  has(call, "input", input, outputs[0][static_cast<std::size_t>(rank_)].numel());
  const bool even = flat->even;
  return run(call, OpType::ALLGATHER, opts, inputs, outputs[0],
             {[=, counts = scaled(flat->counts, flat->tensor(), out)](weft_comm_t* comm,
                                                                      weft_request_t** request) {
                return even ? weft_all_gather(comm, in.data, out.data, in.count, in.type, request)
                            : weft_all_gather_v(comm, in.data, out.data, counts.data(), nullptr,
                                                in.type, request);
              },
              {flat->tensor()},
              {},
              [flat] { flat->copy_out(); }});
}

WeftBackend::WorkPtr WeftBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_),
              "weft: all_gather_coalesced: ", outputs.size(), " lists of outputs, for ", size_,
              " ranks");
  for (const Tensors& list : outputs)
    TORCH_CHECK(list.size() == inputs.size(), "weft: all_gather_coalesced: ", list.size(),
                " outputs of a rank, for ", inputs.size(), " inputs");
  return together(
      [&] {
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          Tensors input{inputs[i]};
          Lists of_all(1);
          for (const Tensors& list : outputs) of_all[0].push_back(list[i]);
          allgather(of_all, input, opts);
        }
      },
      opts.asyncOp);
}

WeftBackend::WorkPtr WeftBackend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(),
              "weft: all_gather_single_coalesced: ", outputs.size(), " outputs, and ",
              inputs.size(), " inputs");
  return together(
      [&] {
        for (std::size_t i = 0; i < inputs.size(); ++i)
          all_gather_single(outputs[i], inputs[i], opts);
      },
      opts.asyncOp);
}

WeftBackend::WorkPtr WeftBackend::gather(Lists& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& opts) {
  const char* const call = "gather";
  const at::Tensor& input = only(call, inputs);
  const Elements in = moved(call, input);
  const int root = static_cast<int>(opts.rootRank);
  if (rank_ != root)
    return run(call, OpType::GATHER, opts, inputs, {},
               {[=](weft_comm_t* comm, weft_request_t** request) {
                 return weft_gather(comm, in.data, nullptr, in.count, in.type, root, request);
               }});
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<std::size_t>(size_),
              "weft: gather: the list of outputs needs ", size_, " tensors on the destination");
  const auto flat = std::make_shared<Flat>(call, outputs[0], Flat::Use::kWrite);
  TORCH_CHECK(flat->even, "weft: gather: the outputs differ in size");
  same_type(call, input, flat->tensor());
  has(call, "output", flat->tensor(), input.numel() * size_);
  const Elements out = moved(call, flat->tensor());
  return run(call, OpType::GATHER, opts, inputs, outputs[0],
             {[=](weft_comm_t* comm, weft_request_t** request) {
                return weft_gather(comm, in.data, out.data, in.count, in.type, root, request);
              },
              {flat->tensor()},
              {},
              [flat] { flat->copy_out(); }});
}

WeftBackend::WorkPtr WeftBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                const c10d::GatherOptions& opts) {
  const char* const call = "gather_single";
  const Elements in = moved(call, input);
  const int root = static_cast<int>(opts.rootRank);
  void* out = nullptr;
  Tensors outputs;
  if (rank_ == root) {
    same_type(call, input, output);
    has(call, "output", output, input.numel() * size_);
    out = moved(call, output).data;
    outputs = {output};
  }
  return run(call, OpType::GATHER, opts, {input}, outputs,
             {[=](weft_comm_t* comm, weft_request_t** request) {
               return weft_gather(comm, in.data, out, in.count, in.type, root, request);
             }});
}

WeftBackend::WorkPtr WeftBackend::scatter(Tensors& outputs, Lists& inputs,
                                          const c10d::ScatterOptions& opts) {
  const char* const call = "scatter";
  const at::Tensor& output = only(call, outputs);
  const Elements out = moved(call, output);
  const int root = static_cast<int>(opts.rootRank);
  void* in = nullptr;
  Tensors kept;
  if (rank_ == root) {
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<std::size_t>(size_),
                "weft: scatter: the list of inputs needs ", size_, " tensors on the source");
    const Flat flat(call, inputs[0], Flat::Use::kRead);
    TORCH_CHECK(flat.even, "weft: scatter: the inputs differ in size");
    same_type(call, flat.tensor(), output);
    has(call, "input", flat.tensor(), output.numel() * size_);
    in = flat.tensor().data_ptr();
    kept = {flat.tensor()};
  }
  return run(call, OpType::SCATTER, opts, inputs.empty() ? Tensors() : inputs[0], outputs,
             {[=](weft_comm_t* comm, weft_request_t** request) {
                return weft_scatter(comm, in, out.data, out.count, out.type, root, request);
              },
              kept});
}

WeftBackend::WorkPtr WeftBackend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                 const c10d::ReduceScatterOptions& opts) {
  const char* const call = "reduce_scatter";
  const at::Tensor& output = only(call, outputs);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<std::size_t>(size_),
              "weft: reduce_scatter: the list of inputs needs ", size_, " tensors");
  const Flat flat(call, inputs[0], Flat::Use::kRead);
  const Elements in = reduced(call, flat.tensor()), out = reduced(call, output);
  same_type(call, flat.tensor(), output);
  has(call, "output", output, inputs[0][static_cast<std::size_t>(rank_)].numel());
  const Operator op(call, opts.reduceOp);
  return run(call, OpType::REDUCE_SCATTER, opts, inputs[0], outputs,
             {[=, even = flat.even, counts = flat.counts, op = weft_op_t(op)](
                  weft_comm_t* comm, weft_request_t** request) {
                return even ? weft_reduce_scatter(comm, in.data, out.data, out.count, in.type, op,
                                                  request)
                            : weft_reduce_scatter_v(comm, in.data, out.data, counts.data(), nullptr,
                                                    in.type, op, request);
              },
              {flat.tensor()}});
}

WeftBackend::WorkPtr WeftBackend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& opts) {
  const char* const call = "reduce_scatter_single";
  const Elements in = reduced(call, input), out = reduced(call, output);
  same_type(call, input, output);
  has(call, "input", input, output.numel() * size_);
  const Operator op(call, opts.reduceOp);
  return run(call, OpType::_REDUCE_SCATTER_BASE, opts, {input}, {output},
             {[=, op = weft_op_t(op)](weft_comm_t* comm, weft_request_t** request) {
               return weft_reduce_scatter(comm, in.data, out.data, out.count, in.type, op, request);
             }});
}

WeftBackend::WorkPtr WeftBackend::reduce_scatter_single_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(),
              "weft: reduce_scatter_single_coalesced: ", outputs.size(), " outputs, and ",
              inputs.size(), " inputs");
  return together(
      [&] {
        for (std::size_t i = 0; i < inputs.size(); ++i)
          reduce_scatter_single(outputs[i], inputs[i], opts);
      },
      opts.asyncOp);
}

WeftBackend::WorkPtr WeftBackend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                                    Sizes& output_sizes, Sizes& input_sizes,
                                                    const c10d::AllToAllOptions& opts) {
  const char* const call = "all_to_all_single";
  const Elements in = moved(call, input), out = moved(call, output);
  same_type(call, input, output);
  const auto sent = scaled(parts_of(call, "input", input, input_sizes, size_), input, in);
  const auto received = scaled(parts_of(call, "output", output, output_sizes, size_), output, out);
  // All ranks must run the same call of weft: what is even here may not be elsewhere.
  const bool even = input_sizes.empty() && output_sizes.empty();
  if (even) has(call, "output", output, input.numel());
  return run(call, OpType::ALLTOALL_BASE, opts, {input}, {output},
             {[=](weft_comm_t* comm, weft_request_t** request) {
               return even ? weft_all_to_all(comm, in.data, out.data, sent[0], in.type, request)
                           : weft_all_to_all_v(comm, in.data, sent.data(), nullptr, out.data,
                                               received.data(), nullptr, in.type, request);
             }});
}

WeftBackend::WorkPtr WeftBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                           const c10d::AllToAllOptions& opts) {
  const char* const call = "all_to_all";
  const auto ranks = static_cast<std::size_t>(size_);
  TORCH_CHECK(inputs.size() == ranks && outputs.size() == ranks,
              "weft: all_to_all: ", inputs.size(), " inputs and ", outputs.size(), " outputs, for ",
              size_, " ranks");
  const Flat from(call, inputs, Flat::Use::kRead);
  const auto to = std::make_shared<Flat>(call, outputs, Flat::Use::kWrite);
  same_type(call, from.tensor(), to->tensor());
  const Elements in = moved(call, from.tensor()), out = moved(call, to->tensor());
  return run(call, OpType::ALLTOALL, opts, inputs, outputs,
             {[=, sent = scaled(from.counts, from.tensor(), in),
               received = scaled(to->counts, to->tensor(), out)](weft_comm_t* comm,
                                                                 weft_request_t** request) {
                return weft_all_to_all_v(comm, in.data, sent.data(), nullptr, out.data,
                                         received.data(), nullptr, in.type, request);
              },
              {from.tensor(), to->tensor()},
              {},
              [to] { to->copy_out(); }});
}

WeftBackend::WorkPtr WeftBackend::barrier(const c10d::BarrierOptions& opts) {
  return run(
      "barrier", OpType::BARRIER, opts, {}, {},
      {[](weft_comm_t* comm, weft_request_t** request) { return weft_barrier(comm, request); }});
}

// The sum of sparse COO tensors: all get the indices and values of all. It runs on the calling
// thread.
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
  const auto world = this->world();
  const auto work = c10::make_intrusive<WeftWork>(
      call_of("recv", OpType::RECV, c10d::kUnsetTimeout), tensors, tensors);
  mailbox_->receive(t, from, tag, work);
  return hand_out(work);
}

WeftBackend::WorkPtr WeftBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& t = only("recv", tensors);
  (void)moved("recv", t);
  const auto world = this->world();
  const auto work = c10::make_intrusive<WeftWork>(
      call_of("recvAnySource", OpType::RECVANYSOURCE, c10d::kUnsetTimeout), tensors, tensors);
  mailbox_->receive(t, Mailbox::kAnySource, tag, work);
  return hand_out(work);
}

}  // namespace weft_torch
