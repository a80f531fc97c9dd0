// The calls of c10d::Backend that reduce, and those that send every rank's tensor to all ranks:
// each determines the location of its bytes and the call of weft that moves them.
#include "backend.h"
#include "tensors.h"

namespace weft_torch {

using c10d::OpType;

WeftBackend::WorkPtr WeftBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor& t = only("broadcast", tensors);
  const Elements e = moved("broadcast", t);
  const int root = static_cast<int>(opts.rootRank);
  return run("broadcast", OpType::BROADCAST, opts, tensors, tensors,
             {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
               return weft_broadcast(comm, e.data, e.data, e.count, e.type, root, request);
             }}});
}

WeftBackend::Parts WeftBackend::all_reduce_parts(const at::Tensor& t, const c10d::ReduceOp& with) {
  const Elements e = reduced("all_reduce", t);
  const auto op = std::make_shared<Operator>("all_reduce", with);
  return {[e, op](weft_comm_t* comm, weft_request_t** request) {
    return weft_all_reduce(comm, e.data, e.data, e.count, e.type, *op, request);
  }};
}

WeftBackend::WorkPtr WeftBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor& t = only("all_reduce", tensors);
  if (t.layout() == at::kSparse) return allreduce_sparse(tensors, opts);
  return run("all_reduce", OpType::ALLREDUCE, opts, tensors, tensors,
             {all_reduce_parts(t, opts.reduceOp)});
}

WeftBackend::WorkPtr WeftBackend::all_reduce_compressed(const at::Tensor& tensor,
                                                        const std::string& codec, bool average,
                                                        const std::optional<at::Tensor>& residual,
                                                        bool async) {
  const char* const call = "all_reduce_compressed";
  TORCH_CHECK(codec == "int8" || codec == "fp8", "weft: ", call, ": the codec is '", codec,
              "'; pass int8 or fp8");
  TORCH_CHECK(tensor.device().is_cpu(), "weft: ", call, ": the tensor is on ", tensor.device(),
              "; copy it to the CPU");
  const Elements e = reduced(call, tensor);
  const weft_codec_t blocks = codec == "int8" ? WEFT_INT8_BLOCKS : WEFT_FP8_BLOCKS;
  const weft_op_t op = average ? WEFT_AVG : WEFT_SUM;
  float* feedback = nullptr;
  Tensors kept;
  if (residual) {
    same_type(call, tensor, *residual);
    has(call, "residual", *residual, tensor.numel());
    feedback = static_cast<float*>(moved(call, *residual).data);
    kept.push_back(*residual);
  }
  c10d::AllreduceOptions opts;
  opts.asyncOp = async;
  return run(call, OpType::ALLREDUCE, opts, {tensor}, {tensor},
             {Parts{[=](weft_comm_t* comm, weft_request_t** request) {
                      weft_comm_t* bound = nullptr;
                      if (const auto no = weft_comm_compressed(comm, blocks, feedback, &bound))
                        return no;
                      const auto result =
                          weft_all_reduce(bound, e.data, e.data, e.count, e.type, op, request);
                      weft_comm_free(bound);
                      return result;
                    },
                    kept}});
}

WeftBackend::WorkPtr WeftBackend::allreduce_coalesced(Tensors& tensors,
                                                      const c10d::AllreduceCoalescedOptions& opts) {
  std::vector<Parts> parts;
  for (const at::Tensor& t : tensors) parts.push_back(all_reduce_parts(t, opts.reduceOp));
  return run("all_reduce", OpType::ALLREDUCE_COALESCED, opts, tensors, tensors, std::move(parts));
}

WeftBackend::WorkPtr WeftBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor& t = only("reduce", tensors);
  const Elements e = reduced("reduce", t);
  const Operator op("reduce", opts.reduceOp);
  const int root = static_cast<int>(opts.rootRank);
  return run("reduce", OpType::REDUCE, opts, tensors, tensors,
             {Parts{[e, root, op = weft_op_t(op)](weft_comm_t* comm, weft_request_t** request) {
               return weft_reduce(comm, e.data, e.data, e.count, e.type, op, root, request);
             }}});
}

WeftBackend::Parts WeftBackend::all_gather_single_parts(const at::Tensor& output,
                                                        const at::Tensor& input) {
  const char* const call = "all_gather_single";
  const Elements in = moved(call, input), out = moved(call, output);
  same_type(call, input, output);
  has(call, "output", output, input.numel() * size_);
  return {[=](weft_comm_t* comm, weft_request_t** request) {
    return weft_all_gather(comm, in.data, out.data, in.count, in.type, request);
  }};
}

WeftBackend::WorkPtr WeftBackend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& opts) {
  return run("all_gather_single", OpType::_ALLGATHER_BASE, opts, {input}, {output},
             {all_gather_single_parts(output, input)});
}

WeftBackend::WorkPtr WeftBackend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(),
              "weft: all_gather_single_coalesced: ", outputs.size(), " outputs, and ",
              inputs.size(), " inputs");
  std::vector<Parts> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(all_gather_single_parts(outputs[i], inputs[i]));
  return run("all_gather_single", OpType::ALLGATHER_INTO_TENSOR_COALESCED, opts, inputs, outputs,
             std::move(parts));
}

WeftBackend::Parts WeftBackend::all_gather_parts(const Tensors& outputs, const at::Tensor& input) {
  const char* const call = "all_gather";
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_),
              "weft: all_gather: the list of outputs needs ", size_, " tensors, not ",
              outputs.size());
  const auto flat = std::make_shared<Flat>(call, outputs, Flat::Use::kWrite);
  const Elements in = moved(call, input), out = moved(call, flat->tensor());
  same_type(call, input, flat->tensor());
  has(call, "input", input, outputs[static_cast<std::size_t>(rank_)].numel());
  const bool even = flat->even;
  return {[=, counts = scaled(flat->counts, flat->tensor(), out)](weft_comm_t* comm,
                                                                  weft_request_t** request) {
            return even ? weft_all_gather(comm, in.data, out.data, in.count, in.type, request)
                        : weft_all_gather_v(comm, in.data, out.data, counts.data(), nullptr,
                                            in.type, request);
          },
          {flat->tensor()},
          [flat] { flat->copy_out(); }};
}

WeftBackend::WorkPtr WeftBackend::allgather(Lists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) {
  const at::Tensor& input = only("all_gather", inputs);
  TORCH_CHECK(outputs.size() == 1, "weft: all_gather takes one list of outputs, not ",
              outputs.size());
  return run("all_gather", OpType::ALLGATHER, opts, inputs, outputs[0],
             {all_gather_parts(outputs[0], input)});
}

WeftBackend::WorkPtr WeftBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_),
              "weft: all_gather_coalesced: ", outputs.size(), " lists of outputs, for ", size_,
              " ranks");
  Tensors all;
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "weft: all_gather_coalesced: ", list.size(),
                " outputs of a rank, for ", inputs.size(), " inputs");
    all.insert(all.end(), list.begin(), list.end());
  }
  std::vector<Parts> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_all;
    for (const Tensors& list : outputs) of_all.push_back(list[i]);
    parts.push_back(all_gather_parts(of_all, inputs[i]));
  }
  return run("all_gather", OpType::ALLGATHER_COALESCED, opts, inputs, all, std::move(parts));
}

WeftBackend::Parts WeftBackend::reduce_scatter_single_parts(const at::Tensor& output,
                                                            const at::Tensor& input,
                                                            const c10d::ReduceOp& with) {
  const char* const call = "reduce_scatter_single";
  const Elements in = reduced(call, input), out = reduced(call, output);
  same_type(call, input, output);
  has(call, "input", input, output.numel() * size_);
  const auto op = std::make_shared<Operator>(call, with);
  return {[=](weft_comm_t* comm, weft_request_t** request) {
    return weft_reduce_scatter(comm, in.data, out.data, out.count, in.type, *op, request);
  }};
}

WeftBackend::WorkPtr WeftBackend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& opts) {
  return run("reduce_scatter_single", OpType::_REDUCE_SCATTER_BASE, opts, {input}, {output},
             {reduce_scatter_single_parts(output, input, opts.reduceOp)});
}

WeftBackend::WorkPtr WeftBackend::reduce_scatter_single_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(),
              "weft: reduce_scatter_single_coalesced: ", outputs.size(), " outputs, and ",
              inputs.size(), " inputs");
  std::vector<Parts> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(reduce_scatter_single_parts(outputs[i], inputs[i], opts.reduceOp));
  return run("reduce_scatter_single", OpType::REDUCE_SCATTER_TENSOR_COALESCED, opts, inputs,
             outputs, std::move(parts));
}

WeftBackend::WorkPtr WeftBackend::barrier(const c10d::BarrierOptions& opts) {
  return run("barrier", OpType::BARRIER, opts, {}, {}, {Parts{weft_barrier}});
}

}  // namespace weft_torch
