// The calls of c10d::Backend in which ranks have parts of their own: gather, scatter, all_to_all.
#include "backend.h"
#include "tensors.h"

namespace weft_torch {

using c10d::OpType;

namespace {

// The elements of each rank's part of a tensor that is split along its first dimension.
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

WeftBackend::WorkPtr WeftBackend::gather(Lists& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& opts) {
  const char* const call = "gather";
  const at::Tensor& input = only(call, inputs);
  const Elements in = moved(call, input);
  const int root = static_cast<int>(opts.rootRank);
  if (rank_ != root)
    return run(call, OpType::GATHER, opts, inputs, {},
               {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
                 return weft_gather(comm, in.data, nullptr, in.count, in.type, root, request);
               }}});
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<std::size_t>(size_),
              "weft: gather: the list of outputs needs ", size_, " tensors on the destination");
  const auto flat = std::make_shared<Flat>(call, outputs[0], Flat::Use::kWrite);
  TORCH_CHECK(flat->even, "weft: gather: the outputs differ in size");
  same_type(call, input, flat->tensor());
  has(call, "output", flat->tensor(), input.numel() * size_);
  const Elements out = moved(call, flat->tensor());
  return run(call, OpType::GATHER, opts, inputs, outputs[0],
             {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
                      return weft_gather(comm, in.data, out.data, in.count, in.type, root, request);
                    },
                    {flat->tensor()},
                    [flat] { flat->copy_out(); }}});
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
             {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
               return weft_gather(comm, in.data, out, in.count, in.type, root, request);
             }}});
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
             {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
                      return weft_scatter(comm, in, out.data, out.count, out.type, root, request);
                    },
                    kept}});
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
             {Parts{[=, even = flat.even, counts = flat.counts, op = weft_op_t(op)](
                        weft_comm_t* comm, weft_request_t** request) {
                      return even ? weft_reduce_scatter(comm, in.data, out.data, out.count, in.type,
                                                        op, request)
                                  : weft_reduce_scatter_v(comm, in.data, out.data, counts.data(),
                                                          nullptr, in.type, op, request);
                    },
                    {flat.tensor()}}});
}

WeftBackend::WorkPtr WeftBackend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                                    Sizes& output_sizes, Sizes& input_sizes,
                                                    const c10d::AllToAllOptions& opts) {
  const char* const call = "all_to_all_single";
  const Elements in = moved(call, input), out = moved(call, output);
  same_type(call, input, output);
  const auto sent = scaled(parts_of(call, "input", input, input_sizes, size_), input, in);
  const auto received = scaled(parts_of(call, "output", output, output_sizes, size_), output, out);
  // All ranks must run the same call of weft, but sizes that are equal on this rank may differ on
  // another.
  const bool even = input_sizes.empty() && output_sizes.empty();
  if (even) has(call, "output", output, input.numel());
  return run(call, OpType::ALLTOALL_BASE, opts, {input}, {output},
             {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
               return even ? weft_all_to_all(comm, in.data, out.data, sent[0], in.type, request)
                           : weft_all_to_all_v(comm, in.data, sent.data(), nullptr, out.data,
                                               received.data(), nullptr, in.type, request);
             }}});
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
             {Parts{[=, sent = scaled(from.counts, from.tensor(), in),
                     received = scaled(to->counts, to->tensor(), out)](weft_comm_t* comm,
                                                                       weft_request_t** request) {
                      return weft_all_to_all_v(comm, in.data, sent.data(), nullptr, out.data,
                                               received.data(), nullptr, in.type, request);
                    },
                    {from.tensor(), to->tensor()},
                    [to] { to->copy_out(); }}});
}

}  // namespace weft_torch
