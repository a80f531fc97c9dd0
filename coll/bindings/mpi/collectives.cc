// The collectives that weft takes over, blocking and non-blocking.
//
// All ranks must route a call the same way: the route depends on the communicator and, in
// reductions, on the type and the operator, which MPI requires to be the same on all ranks. Calls
// that only move data move bytes, whatever the type: ranks may describe the same elements with
// different types, so a derived type on one rank must not route its call to MPI.
#include <algorithm>
#include <new>
#include <optional>

#include "coll/bindings/mpi/functions.h"
#include "coll/bindings/mpi/running.h"

namespace weft::mpi {
namespace {

// For a collective that moves bytes in memory, whatever their type.
constexpr DType kBytes = DType::kUInt8;

int fail(MPI_Comm comm, int error) {
  PMPI_Comm_call_errhandler(comm, error);
  return error;
}

// Returns what `call` returns or, if it throws, what the error handler of `comm` returns. No
// exception reaches the program.
template <class Call>
int guarded(MPI_Comm comm, const Call& call) {
  try {
    return call();
  } catch (const Refused& refused) {
    return fail(comm, refused.by_weft);
  } catch (const std::bad_alloc&) {
    return fail(comm, MPI_ERR_NO_MEM);
  } catch (const std::exception& e) {
    return answer(comm, Status(Code::kInternal, e.what()));
  }
}

// Whether weft has started the call. `start` returns the reason if not, before anything is in
// flight.
template <class Start>
bool started(Count& count, Running& running, const Start& start, Way& way) {
  try {
    way = start(running);
  } catch (const Refused& refused) {
    if (refused.by_weft) throw;
    way = Way::kArgument;
  }
  if (way == Way::kWeft) count.add(way);
  return way == Way::kWeft;
}

// Runs a call with weft by `start`, or with MPI by `pass`.
template <class Start, class Pass>
int run(Count& count, MPI_Comm comm, const Start& start, const Pass& pass) {
  return guarded(comm, [&] {
    Way way;
    if (const Communicator* by = serving(comm, way)) {
      Running running(comm, *by, true);
      if (started(count, running, start, way)) return running.end();
    }
    count.add(way);
    return pass();
  });
}

template <class Start, class Pass>
int run(Count& count, MPI_Comm comm, MPI_Request* request, const Start& start, const Pass& pass) {
  return guarded(comm, [&] {
    Way way = request ? Way::kNotOffered : Way::kArgument;
    if (const Communicator* by = request && hands_out() ? serving(comm, way) : nullptr) {
      auto running = std::make_unique<Running>(comm, *by, false);
      if (started(count, *running, start, way)) return hand_out(std::move(running), request);
    }
    count.add(way);
    return pass();
  });
}

// The type and operator of a reduction; empty: `way` is the reason. Throws Refused for buffers that
// no reduction takes. The result goes to `out`.
std::optional<RedOp> reduction(const void* in, const void* out, std::size_t count,
                               MPI_Datatype type, MPI_Op op, Way& way) {
  if (!dtype_of(type)) {
    way = Way::kType;
    return {};
  }
  const std::optional<RedOp> as = op_of(op, type);
  if (!as) {
    way = Way::kOperator;
    return {};
  }
  expect_buffer(out, count != 0);
  if (in != MPI_IN_PLACE) {
    expect_buffer(in, count != 0);
    expect_apart(in, out, count != 0);
  }
  return as;
}

Way barrier(Running& r) {
  r.begin(WEFT_FORMS(barrier));
  return Way::kWeft;
}

Way bcast(Running& r, void* data, MPI_Count count, MPI_Datatype type, int root) {
  const bool sends = r.is_root(root);
  Bytes& bytes = r.keep(Bytes::to_receive(data, {count}, type, sends), !sends);
  r.begin(WEFT_FORMS(broadcast), bytes.at(), bytes.at(), bytes.count(0), kBytes, root);
  return Way::kWeft;
}

Way allreduce(Running& r, const void* in, void* out, MPI_Count count, MPI_Datatype type,
              MPI_Op op) {
  Way way = Way::kWeft;
  const std::size_t n = elements(count);
  if (const auto as = reduction(in, out, n, type, op, way))
    r.begin(WEFT_FORMS(all_reduce), in == MPI_IN_PLACE ? out : in, out, n, *dtype_of(type), *as);
  return way;
}

Way reduce(Running& r, const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
           int root) {
  Way way = Way::kWeft;
  const std::size_t n = elements(count);
  // Only the root has a result, and only the root may reduce in place.
  const bool writes = r.is_root(root);
  expect(writes || in != MPI_IN_PLACE);
  if (const auto as = reduction(writes ? in : MPI_IN_PLACE, writes ? out : in, n, type, op, way))
    r.begin(WEFT_FORMS(reduce), in == MPI_IN_PLACE ? out : in, out, n, *dtype_of(type), *as, root);
  return way;
}

// In place, MPI puts the result at the start of the buffer, weft in the rank's own block.
Way reduce_scatter_block(Running& r, const void* in, void* out, MPI_Count count, MPI_Datatype type,
                         MPI_Op op) {
  Way way = Way::kWeft;
  const std::size_t n = elements(count);
  const auto as = reduction(in, out, n, type, op, way);
  if (!as) return way;
  if (in == MPI_IN_PLACE) {
    in = out;
    out = r.keep_result(out, n * bytes_of(type));
  }
  r.begin(WEFT_FORMS(reduce_scatter), in, out, n, *dtype_of(type), *as);
  return way;
}

Way reduce_scatter(Running& r, const void* in, void* out, Numbers counts, MPI_Datatype type,
                   MPI_Op op) {
  Way way = Way::kWeft;
  expect(static_cast<bool>(counts));
  std::vector<std::size_t> blocks;
  for (int p = 0; p < r.ranks(); ++p) blocks.push_back(elements(counts[p]));
  if (std::ranges::all_of(blocks, [&](std::size_t n) { return n == blocks[0]; }))
    return reduce_scatter_block(r, in, out, counts[0], type, op);
  const std::size_t n = blocks[r.me()];
  const auto as = reduction(in, out, n, type, op, way);
  if (!as) return way;
  if (in == MPI_IN_PLACE) {
    in = out;
    out = r.keep_result(out, n * bytes_of(type));
  }
  r.begin(WEFT_FORMS(reduce_scatter_v), in, out, Blocks(blocks), *dtype_of(type), *as);
  return way;
}

Way allgather(Running& r, const void* in, MPI_Count nin, MPI_Datatype tin, void* out,
              MPI_Count nout, MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  Bytes& to = r.keep(Bytes::to_receive(out, {nout, r.ranks()}, tout, here), true);
  const std::byte* const from =
      here ? to.block(r.me()) : r.keep(Bytes::to_send(in, {nin}, tin)).at();
  r.begin(WEFT_FORMS(all_gather), from, to.at(), to.count(0), kBytes);
  return Way::kWeft;
}

Way allgatherv(Running& r, const void* in, MPI_Count nin, MPI_Datatype tin, void* out,
               Numbers counts, Numbers at, MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  Bytes& to = r.keep(Bytes::to_receive(out, r.blocks(counts, at), tout, here), true);
  const std::byte* const from =
      here ? to.block(r.me()) : r.keep(Bytes::to_send(in, {nin}, tin)).at();
  r.begin(WEFT_FORMS(all_gather_v), from, to.at(), to.blocks(), kBytes);
  return Way::kWeft;
}

Way gather(Running& r, const void* in, MPI_Count nin, MPI_Datatype tin, void* out, MPI_Count nout,
           MPI_Datatype tout, int root) {
  if (!r.is_root(root)) {
    const Bytes& from = r.keep(Bytes::to_send(in, {nin}, tin));
    r.begin(WEFT_FORMS(gather), from.at(), nullptr, from.count(0), kBytes, root);
    return Way::kWeft;
  }
  const bool here = in == MPI_IN_PLACE;
  Bytes& to = r.keep(Bytes::to_receive(out, {nout, r.ranks()}, tout, here), true);
  r.begin(WEFT_FORMS(gather), here ? to.block(r.me()) : r.keep(Bytes::to_send(in, {nin}, tin)).at(),
          to.at(), to.count(0), kBytes, root);
  return Way::kWeft;
}

Way scatter(Running& r, const void* in, MPI_Count nin, MPI_Datatype tin, void* out, MPI_Count nout,
            MPI_Datatype tout, int root) {
  if (!r.is_root(root)) {
    const Bytes& to = r.keep(Bytes::to_receive(out, {nout}, tout), true);
    r.begin(WEFT_FORMS(scatter), nullptr, to.at(), to.count(0), kBytes, root);
    return Way::kWeft;
  }
  const bool here = out == MPI_IN_PLACE;
  const Bytes& from = r.keep(Bytes::to_send(in, {nin, r.ranks()}, tin));
  r.begin(WEFT_FORMS(scatter), from.at(),
          here ? from.block(r.me()) : r.keep(Bytes::to_receive(out, {nout}, tout), true).at(),
          from.count(0), kBytes, root);
  return Way::kWeft;
}

// Only the root knows the sizes of all blocks, so ranks exchange messages.
Way gatherv(Running& r, const void* in, MPI_Count nin, MPI_Datatype tin, void* out, Numbers counts,
            Numbers at, MPI_Datatype tout, int root) {
  std::vector<Message> messages;
  const bool receives = r.is_root(root), here = receives && in == MPI_IN_PLACE;
  if (!here) {
    const Bytes& from = r.keep(Bytes::to_send(in, {nin}, tin));
    if (from.count(0)) messages.push_back(Message::to(root, from.at(), from.count(0), kBytes));
  }
  if (receives) {
    const Bytes& to = r.keep(Bytes::to_receive(out, r.blocks(counts, at), tout, here), true);
    for (int p = 0; p < r.ranks(); ++p) {
      const auto b = static_cast<std::size_t>(p);
      if (to.count(b) && !(here && p == root))
        messages.push_back(Message::from(p, to.block(b), to.count(b), kBytes));
    }
  }
  r.exchange(messages);
  return Way::kWeft;
}

Way scatterv(Running& r, const void* in, Numbers counts, Numbers at, MPI_Datatype tin, void* out,
             MPI_Count nout, MPI_Datatype tout, int root) {
  std::vector<Message> messages;
  const bool sends = r.is_root(root), here = sends && out == MPI_IN_PLACE;
  if (sends) {
    const Bytes& from = r.keep(Bytes::to_send(in, r.blocks(counts, at), tin));
    for (int p = 0; p < r.ranks(); ++p) {
      const auto b = static_cast<std::size_t>(p);
      if (from.count(b) && !(here && p == root))
        messages.push_back(Message::to(p, from.block(b), from.count(b), kBytes));
    }
  }
  if (!here) {
    const Bytes& to = r.keep(Bytes::to_receive(out, {nout}, tout), true);
    if (to.count(0)) messages.push_back(Message::from(root, to.at(), to.count(0), kBytes));
  }
  r.exchange(messages);
  return Way::kWeft;
}

Way alltoall(Running& r, const void* in, MPI_Count nin, MPI_Datatype tin, void* out, MPI_Count nout,
             MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  const Bytes& to = r.keep(Bytes::to_receive(out, {nout, r.ranks()}, tout, here), true);
  if (!here) expect_apart(in, out, to.count(0) != 0);
  const std::byte* const from =
      here ? to.at() : r.keep(Bytes::to_send(in, {nin, r.ranks()}, tin)).at();
  r.begin(WEFT_FORMS(all_to_all), from, to.at(), to.count(0), kBytes);
  return Way::kWeft;
}

// In place, the data to send is copied first. Blocks to send may overlap.
Way alltoallv(Running& r, const void* in, Numbers nin, Numbers atin, MPI_Datatype tin, void* out,
              Numbers nout, Numbers atout, MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  const Layout received = r.blocks(nout, atout);
  if (!here) expect_apart(in, out, true);
  const Bytes& from = here ? r.keep(Bytes::to_send(out, received, tout, true))
                           : r.keep(Bytes::to_send(in, r.blocks(nin, atin), tin));
  const Bytes& to = r.keep(Bytes::to_receive(out, received, tout), true);
  r.begin(WEFT_FORMS(all_to_all_v), from.at(), from.blocks(), to.at(), to.blocks(), kBytes);
  return Way::kWeft;
}

}  // namespace
}  // namespace weft::mpi

using namespace weft;       // NOLINT: MPI's names are global
using namespace weft::mpi;  // NOLINT

#define WEFT_BY_WEFT(NAME, INAME, C, START, TYPED, ...)                                     \
  static Count count_##NAME##C("MPI_" #NAME #C), count_##INAME##C("MPI_" #INAME #C);        \
  extern "C" int MPI_##NAME##C(WEFT_UNWRAP TYPED, MPI_Comm comm) {                          \
    return run(                                                                             \
        count_##NAME##C, comm, [&](Running& r) { return START(r, __VA_ARGS__); },           \
        [&] { return PMPI_##NAME##C(__VA_ARGS__, comm); });                                 \
  }                                                                                         \
  extern "C" int MPI_##INAME##C(WEFT_UNWRAP TYPED, MPI_Comm comm, MPI_Request* request) {   \
    return run(                                                                             \
        count_##INAME##C, comm, request, [&](Running& r) { return START(r, __VA_ARGS__); }, \
        [&] { return PMPI_##INAME##C(__VA_ARGS__, comm, request); });                       \
  }
WEFT_TAKEN(WEFT_BY_WEFT, , int, int)
#ifdef WEFT_LARGE_COUNTS
WEFT_TAKEN(WEFT_BY_WEFT, _c, MPI_Count, MPI_Aint)
#endif

static Count count_Barrier("MPI_Barrier"), count_Ibarrier("MPI_Ibarrier");
extern "C" int MPI_Barrier(MPI_Comm comm) {
  return run(count_Barrier, comm, barrier, [&] { return PMPI_Barrier(comm); });
}
extern "C" int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return run(count_Ibarrier, comm, request, barrier, [&] { return PMPI_Ibarrier(comm, request); });
}
