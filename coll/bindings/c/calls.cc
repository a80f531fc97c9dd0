// Collectives, messages and groups of weft.h. A call is recorded if a group is open, blocks if no
// request is asked for, and starts otherwise.
#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "coll/bindings/c/handles.h"

namespace weft::c {
namespace {

// ---- arguments ----------------------------------------------------------------------------

DType dtype_of(weft_dtype_t type) {
  if (static_cast<unsigned>(type) < static_cast<unsigned>(kDTypes)) return static_cast<DType>(type);
  throw StatusError({Code::kInvalidArgument, fmt::format("{} is not a weft_dtype_t (0..{})",
                                                         static_cast<int>(type), kDTypes - 1)});
}

// The block sizes that a caller passes, one per rank of the communicator.
struct Sizes {
  const size_t *counts, *offsets;
};

// The operator that a caller passes, which in C is a number.
struct Op {
  weft_op_t number;
};

// Copies of block sizes, for the calls that a group records.
struct KeptBlocks {
  std::vector<std::size_t> counts, offsets;
  KeptBlocks(const Communicator& comm, const Sizes& given)
      : counts(given.counts, given.counts + comm.size()) {
    if (given.offsets) offsets.assign(given.offsets, given.offsets + comm.size());
  }
  operator Blocks() const { return {counts, offsets}; }  // NOLINT: implicit
};

// Converts arguments of weft.h to those of a Communicator.
const void* cpp(const Communicator&, const void* in) { return in; }
void* cpp(const Communicator&, void* out) { return out; }
std::size_t cpp(const Communicator&, std::size_t count) { return count; }
Rank cpp(const Communicator&, int root) { return root; }
DType cpp(const Communicator&, weft_dtype_t type) { return dtype_of(type); }
Reduction cpp(const Communicator&, Op op) { return reduction_of(op.number); }
KeptBlocks cpp(const Communicator& comm, const Sizes& sizes) { return {comm, sizes}; }

// ---- groups -------------------------------------------------------------------------------

struct Noted {
  weft_comm_t* comm;
  std::optional<Message> message;
  std::function<Request()> start;  // for a collective
};

struct OpenGroup {
  int depth = 0;
  std::vector<Noted> calls;
};
thread_local OpenGroup group;

weft_result_t start_group(std::vector<Noted> calls, weft_request& into) {
  std::vector<weft_comm_t*> comms;
  for (const Noted& call : calls)
    if (call.message && std::ranges::find(comms, call.comm) == comms.end())
      comms.push_back(call.comm);
  for (weft_comm_t* comm : comms) {
    std::vector<Message> messages;
    for (const Noted& call : calls)
      if (call.message && call.comm == comm) messages.push_back(*call.message);
    into.messages.push_back(comm->comm.exchange_async(messages));
  }
  for (const Noted& call : calls)
    if (call.start) into.calls.push_back(call.start());
  return WEFT_OK;
}

// ---- one call -----------------------------------------------------------------------------

weft_result_t needs_no_request(weft_request_t** request) {
  if (!request) return WEFT_OK;
  return failed(WEFT_INVALID_ARGUMENT,
                "a call between weft_group_start() and weft_group_end() has no request of its own: "
                "pass NULL, and ask weft_group_end() for one");
}

// Runs, starts or records a collective by one of its two forms. A recorded call owns its arguments.
template <class Run, class Start, class... Given>
weft_result_t collective(weft_comm_t* comm, weft_request_t** request, Run run, Start start,
                         const Given&... given) {
  return guarded([&] {
    const auto arguments = std::make_tuple(cpp(comm->comm, given)...);
    const auto call = [comm, arguments](auto form) {
      return std::apply([&](const auto&... a) { return (comm->comm.*form)(a...); }, arguments);
    };
    if (group.depth > 0) {
      if (const auto no = needs_no_request(request)) return no;
      group.calls.push_back({comm, {}, [call, start] { return call(start); }});
      return WEFT_OK;
    }
    if (!request) return result_of(call(run));
    auto made = std::make_unique<weft_request>();
    made->calls.push_back(call(start));
    return hand_over(std::move(made), request);
  });
}

weft_result_t one_message(weft_comm_t* comm, const Message& m, weft_request_t** request) {
  if (group.depth > 0) {
    if (const auto no = needs_no_request(request)) return no;
    group.calls.push_back({comm, m, {}});
    return WEFT_OK;
  }
  Communicator& c = comm->comm;
  if (!request)
    return result_of(m.sends ? c.send(m.data, m.count, m.type, m.peer)
                             : c.recv(m.data, m.count, m.type, m.peer));
  auto made = std::make_unique<weft_request>();
  made->calls.push_back(m.sends ? c.send_async(m.data, m.count, m.type, m.peer)
                                : c.recv_async(m.data, m.count, m.type, m.peer));
  return hand_over(std::move(made), request);
}

}  // namespace
}  // namespace weft::c

using weft::c::failed;
using weft::c::guarded;
using weft::c::Op;
using weft::c::Sizes;

// Returns the result of Communicator's collective `name` for the arguments that follow.
#define WEFT_C_RETURN(name, ...)                                       \
  WEFT_C_NOT_NULL(comm);                                               \
  return weft::c::collective(comm, request, &weft::Communicator::name, \
                             &weft::Communicator::name##_async __VA_OPT__(, ) __VA_ARGS__)

// ---- collectives --------------------------------------------------------------------------

weft_result_t weft_all_reduce(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_op_t op, weft_request_t** request) {
  WEFT_C_RETURN(all_reduce, in, out, count, type, Op{op});
}

weft_result_t weft_all_gather(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_request_t** request) {
  WEFT_C_RETURN(all_gather, in, out, count, type);
}

weft_result_t weft_reduce_scatter(weft_comm_t* comm, const void* in, void* out, size_t count,
                                  weft_dtype_t type, weft_op_t op, weft_request_t** request) {
  WEFT_C_RETURN(reduce_scatter, in, out, count, type, Op{op});
}

weft_result_t weft_broadcast(weft_comm_t* comm, const void* in, void* out, size_t count,
                             weft_dtype_t type, int root, weft_request_t** request) {
  WEFT_C_RETURN(broadcast, in, out, count, type, root);
}

weft_result_t weft_barrier(weft_comm_t* comm, weft_request_t** request) { WEFT_C_RETURN(barrier); }

weft_result_t weft_reduce(weft_comm_t* comm, const void* in, void* out, size_t count,
                          weft_dtype_t type, weft_op_t op, int root, weft_request_t** request) {
  WEFT_C_RETURN(reduce, in, out, count, type, Op{op}, root);
}

weft_result_t weft_gather(weft_comm_t* comm, const void* in, void* out, size_t count,
                          weft_dtype_t type, int root, weft_request_t** request) {
  WEFT_C_RETURN(gather, in, out, count, type, root);
}

weft_result_t weft_scatter(weft_comm_t* comm, const void* in, void* out, size_t count,
                           weft_dtype_t type, int root, weft_request_t** request) {
  WEFT_C_RETURN(scatter, in, out, count, type, root);
}

weft_result_t weft_all_to_all(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_request_t** request) {
  WEFT_C_RETURN(all_to_all, in, out, count, type);
}

weft_result_t weft_all_gather_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                                const size_t* offsets, weft_dtype_t type,
                                weft_request_t** request) {
  WEFT_C_NOT_NULL(counts);
  WEFT_C_RETURN(all_gather_v, in, out, Sizes{counts, offsets}, type);
}

weft_result_t weft_reduce_scatter_v(weft_comm_t* comm, const void* in, void* out,
                                    const size_t* counts, const size_t* offsets, weft_dtype_t type,
                                    weft_op_t op, weft_request_t** request) {
  WEFT_C_NOT_NULL(counts);
  WEFT_C_RETURN(reduce_scatter_v, in, out, Sizes{counts, offsets}, type, Op{op});
}

weft_result_t weft_gather_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                            const size_t* offsets, weft_dtype_t type, int root,
                            weft_request_t** request) {
  WEFT_C_NOT_NULL(counts);
  WEFT_C_RETURN(gather_v, in, out, Sizes{counts, offsets}, type, root);
}

weft_result_t weft_scatter_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                             const size_t* offsets, weft_dtype_t type, int root,
                             weft_request_t** request) {
  WEFT_C_NOT_NULL(counts);
  WEFT_C_RETURN(scatter_v, in, out, Sizes{counts, offsets}, type, root);
}

weft_result_t weft_all_to_all_v(weft_comm_t* comm, const void* in, const size_t* sent,
                                const size_t* sent_offsets, void* out, const size_t* received,
                                const size_t* received_offsets, weft_dtype_t type,
                                weft_request_t** request) {
  WEFT_C_NOT_NULL(sent);
  WEFT_C_NOT_NULL(received);
  WEFT_C_RETURN(all_to_all_v, in, Sizes{sent, sent_offsets}, out, Sizes{received, received_offsets},
                type);
}

// ---- messages and groups ------------------------------------------------------------------

weft_result_t weft_send(weft_comm_t* comm, const void* data, size_t count, weft_dtype_t type,
                        int to, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto m = weft::Message::to(to, data, count, weft::c::dtype_of(type));
    return weft::c::one_message(comm, m, request);
  });
}

weft_result_t weft_recv(weft_comm_t* comm, void* data, size_t count, weft_dtype_t type, int from,
                        weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto m = weft::Message::from(from, data, count, weft::c::dtype_of(type));
    return weft::c::one_message(comm, m, request);
  });
}

weft_result_t weft_group_start(void) {
  ++weft::c::group.depth;
  return WEFT_OK;
}

weft_result_t weft_group_end(weft_request_t** request) {
  auto& group = weft::c::group;
  return guarded([&] {
    if (group.depth == 0)
      return failed(WEFT_INVALID_ARGUMENT, "weft_group_end: called without weft_group_start()");
    if (group.depth > 1) {
      if (const auto no = weft::c::needs_no_request(request)) return no;
      --group.depth;
      return WEFT_OK;
    }
    --group.depth;
    auto made = std::make_unique<weft_request>();
    const auto started = weft::c::start_group(std::exchange(group.calls, {}), *made);
    if (started) return started;
    if (request) return weft::c::hand_over(std::move(made), request);
    weft_request_t* all = made.release();
    return weft::c::end(&all);
  });
}
