// Collectives, messages and groups of weft.h. A call is recorded if a group is open, blocks if no
// request is asked for, and starts otherwise.
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
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

// The sizes of blocks, one per rank of the communicator.
Blocks blocks_of(const Communicator& comm, const size_t* counts, const size_t* offsets) {
  const auto n = static_cast<std::size_t>(comm.size());
  std::span<const std::size_t> no_offsets;
  return {{counts, n}, offsets ? std::span<const std::size_t>(offsets, n) : no_offsets};
}

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

// Runs, starts or records a collective. `blocking(comm)` runs it, `start(comm)` starts it; a
// recorded `start` must own everything that it needs.
template <typename Blocking, typename Start>
weft_result_t collective(weft_comm_t* comm, weft_request_t** request, Blocking&& blocking,
                         Start&& start) {
  if (group.depth > 0) {
    if (const auto no = needs_no_request(request)) return no;
    group.calls.push_back({comm, {}, [comm, start] { return start(comm->comm); }});
    return WEFT_OK;
  }
  if (!request) return result_of(blocking(comm->comm));
  auto made = std::make_unique<weft_request>();
  made->calls.push_back(start(comm->comm));
  return hand_over(std::move(made), request);
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

// Copies of counts and offsets, for recorded calls.
struct KeptBlocks {
  std::vector<std::size_t> counts, offsets;
  explicit KeptBlocks(const Blocks& b)
      : counts(b.counts.begin(), b.counts.end()), offsets(b.offsets.begin(), b.offsets.end()) {}
  operator Blocks() const { return {counts, offsets}; }  // NOLINT: implicit
};

}  // namespace
}  // namespace weft::c

using weft::Communicator;
using weft::c::failed;
using weft::c::guarded;

// Communicator's call `name` with the arguments that follow, in both forms.
#define WEFT_C_CALL(name, ...)                                             \
  weft::c::collective(                                                     \
      comm, request, [=](Communicator& c) { return c.name(__VA_ARGS__); }, \
      [=](Communicator& c) { return c.name##_async(__VA_ARGS__); })

// ---- collectives --------------------------------------------------------------------------

weft_result_t weft_all_reduce(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_op_t op, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const auto r = weft::c::reduction_of(op);
    return WEFT_C_CALL(all_reduce, in, out, count, t, r);
  });
}

weft_result_t weft_all_gather(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    return WEFT_C_CALL(all_gather, in, out, count, t);
  });
}

weft_result_t weft_reduce_scatter(weft_comm_t* comm, const void* in, void* out, size_t count,
                                  weft_dtype_t type, weft_op_t op, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const auto r = weft::c::reduction_of(op);
    return WEFT_C_CALL(reduce_scatter, in, out, count, t, r);
  });
}

weft_result_t weft_broadcast(weft_comm_t* comm, const void* in, void* out, size_t count,
                             weft_dtype_t type, int root, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    return WEFT_C_CALL(broadcast, in, out, count, t, root);
  });
}

weft_result_t weft_barrier(weft_comm_t* comm, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] { return WEFT_C_CALL(barrier); });
}

weft_result_t weft_reduce(weft_comm_t* comm, const void* in, void* out, size_t count,
                          weft_dtype_t type, weft_op_t op, int root, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const auto r = weft::c::reduction_of(op);
    return WEFT_C_CALL(reduce, in, out, count, t, r, root);
  });
}

weft_result_t weft_gather(weft_comm_t* comm, const void* in, void* out, size_t count,
                          weft_dtype_t type, int root, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    return WEFT_C_CALL(gather, in, out, count, t, root);
  });
}

weft_result_t weft_scatter(weft_comm_t* comm, const void* in, void* out, size_t count,
                           weft_dtype_t type, int root, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    return WEFT_C_CALL(scatter, in, out, count, t, root);
  });
}

weft_result_t weft_all_to_all(weft_comm_t* comm, const void* in, void* out, size_t count,
                              weft_dtype_t type, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    return WEFT_C_CALL(all_to_all, in, out, count, t);
  });
}

// ---- blocks of different sizes ------------------------------------------------------------

weft_result_t weft_all_gather_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                                const size_t* offsets, weft_dtype_t type,
                                weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(counts);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const weft::c::KeptBlocks blocks(weft::c::blocks_of(comm->comm, counts, offsets));
    return WEFT_C_CALL(all_gather_v, in, out, blocks, t);
  });
}

weft_result_t weft_reduce_scatter_v(weft_comm_t* comm, const void* in, void* out,
                                    const size_t* counts, const size_t* offsets, weft_dtype_t type,
                                    weft_op_t op, weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(counts);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const auto r = weft::c::reduction_of(op);
    const weft::c::KeptBlocks blocks(weft::c::blocks_of(comm->comm, counts, offsets));
    return WEFT_C_CALL(reduce_scatter_v, in, out, blocks, t, r);
  });
}

weft_result_t weft_gather_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                            const size_t* offsets, weft_dtype_t type, int root,
                            weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(counts);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const weft::c::KeptBlocks blocks(weft::c::blocks_of(comm->comm, counts, offsets));
    return WEFT_C_CALL(gather_v, in, out, blocks, t, root);
  });
}

weft_result_t weft_scatter_v(weft_comm_t* comm, const void* in, void* out, const size_t* counts,
                             const size_t* offsets, weft_dtype_t type, int root,
                             weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(counts);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const weft::c::KeptBlocks blocks(weft::c::blocks_of(comm->comm, counts, offsets));
    return WEFT_C_CALL(scatter_v, in, out, blocks, t, root);
  });
}

weft_result_t weft_all_to_all_v(weft_comm_t* comm, const void* in, const size_t* sent,
                                const size_t* sent_offsets, void* out, const size_t* received,
                                const size_t* received_offsets, weft_dtype_t type,
                                weft_request_t** request) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(sent);
  WEFT_C_NOT_NULL(received);
  return guarded([&] {
    const auto t = weft::c::dtype_of(type);
    const weft::c::KeptBlocks to(weft::c::blocks_of(comm->comm, sent, sent_offsets));
    const weft::c::KeptBlocks from(weft::c::blocks_of(comm->comm, received, received_offsets));
    return WEFT_C_CALL(all_to_all_v, in, to, out, from, t);
  });
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
