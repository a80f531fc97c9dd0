// The collectives that weft takes over, blocking and not.
//
// Which way a call goes must be the same on all ranks: it depends on the communicator, and in
// reductions on the type and the operator, which MPI wants to be the same on all. Data that is only
// moved is moved as bytes, whatever its type: ranks may describe the same elements differently, so
// a derived type on one of them cannot make the call MPI's.
#include <optional>

#include "coll/bindings/mpi/running.h"

namespace weft::mpi {
namespace {

// A call by weft: what starts it, what MPI does instead. `start` returns why not, before anything
// is under way.
template <class Start, class Pass>
int run(Count& count, MPI_Comm comm, const Start& start, const Pass& pass) {
  Way way;
  if (const Communicator* by = serving(comm, way)) {
    Running running(comm, *by, true);
    way = start(running);
    if (way == Way::kWeft) {
      count.add(way);
      return running.end();
    }
  }
  count.add(way);
  return pass();
}

template <class Start, class Pass>
int run(Count& count, MPI_Comm comm, MPI_Request* request, const Start& start, const Pass& pass) {
  Way way;
  if (const Communicator* by = serving(comm, way)) {
    auto running = std::make_unique<Running>(comm, *by, false);
    way = start(*running);
    if (way == Way::kWeft) {
      count.add(way);
      return hand_out(running.release(), request);
    }
  }
  count.add(way);
  return pass();
}

// The type and operator of a reduction; `way` says why not.
std::optional<RedOp> reduction(MPI_Datatype type, MPI_Op op, Way& way) {
  if (!dtype_of(type)) {
    way = Way::kType;
    return {};
  }
  const std::optional<RedOp> as = op_of(op, type);
  if (!as) way = Way::kOperator;
  return as;
}

std::size_t elements(int count) { return static_cast<std::size_t>(count); }

Way barrier(Running& r) {
  r.barrier();
  return Way::kWeft;
}

Way bcast(Running& r, void* data, int count, MPI_Datatype type, int root) {
  const bool sends = r.me() == static_cast<std::size_t>(root);
  Bytes& bytes = r.keep(Bytes::to_receive(data, {count}, type, sends), !sends);
  r.broadcast(bytes.at(), bytes.count(0), root);
  return Way::kWeft;
}

Way allreduce(Running& r, const void* in, void* out, int count, MPI_Datatype type, MPI_Op op) {
  Way way = Way::kWeft;
  if (const auto as = reduction(type, op, way))
    r.all_reduce(in == MPI_IN_PLACE ? out : in, out, elements(count), *dtype_of(type), *as);
  return way;
}

Way reduce(Running& r, const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
           int root) {
  Way way = Way::kWeft;
  if (const auto as = reduction(type, op, way))
    r.reduce(in == MPI_IN_PLACE ? out : in, out, elements(count), *dtype_of(type), *as, root);
  return way;
}

// In place, MPI has the result at the beginning of the buffer, weft in the rank's own block.
Way reduce_scatter_block(Running& r, const void* in, void* out, int count, MPI_Datatype type,
                         MPI_Op op) {
  Way way = Way::kWeft;
  const auto as = reduction(type, op, way);
  if (!as) return way;
  if (in == MPI_IN_PLACE) {
    in = out;
    out = r.keep_result(out, elements(count) * bytes_of(type));
  }
  r.reduce_scatter(in, out, elements(count), *dtype_of(type), *as);
  return way;
}

Way reduce_scatter(Running& r, const void* in, void* out, const int counts[], MPI_Datatype type,
                   MPI_Op op) {
  Way way = Way::kWeft;
  const auto as = reduction(type, op, way);
  if (!as) return way;
  const std::vector<std::size_t> blocks(counts, counts + r.ranks());
  if (in == MPI_IN_PLACE) {
    in = out;
    out = r.keep_result(out, blocks[r.me()] * bytes_of(type));
  }
  r.reduce_scatter_v(in, out, Blocks(blocks), *dtype_of(type), *as);
  return way;
}

Way allgather(Running& r, const void* in, int nin, MPI_Datatype tin, void* out, int nout,
              MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  Bytes& to = r.keep(Bytes::to_receive(out, {nout, r.ranks()}, tout, here), true);
  const std::byte* const from =
      here ? to.block(r.me()) : r.keep(Bytes::to_send(in, {nin}, tin)).at();
  r.all_gather(from, to.at(), to.count(0));
  return Way::kWeft;
}

Way allgatherv(Running& r, const void* in, int nin, MPI_Datatype tin, void* out, const int counts[],
               const int at[], MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  Bytes& to = r.keep(Bytes::to_receive(out, {0, r.ranks(), counts, at}, tout, here), true);
  const std::byte* const from =
      here ? to.block(r.me()) : r.keep(Bytes::to_send(in, {nin}, tin)).at();
  r.all_gather_v(from, to.at(), to.blocks());
  return Way::kWeft;
}

Way gather(Running& r, const void* in, int nin, MPI_Datatype tin, void* out, int nout,
           MPI_Datatype tout, int root) {
  const bool here = in == MPI_IN_PLACE;
  if (r.me() != static_cast<std::size_t>(root)) {
    const Bytes& from = r.keep(Bytes::to_send(in, {nin}, tin));
    r.gather(from.at(), nullptr, from.count(0), root);
    return Way::kWeft;
  }
  Bytes& to = r.keep(Bytes::to_receive(out, {nout, r.ranks()}, tout, here), true);
  r.gather(here ? to.block(r.me()) : r.keep(Bytes::to_send(in, {nin}, tin)).at(), to.at(),
           to.count(0), root);
  return Way::kWeft;
}

Way scatter(Running& r, const void* in, int nin, MPI_Datatype tin, void* out, int nout,
            MPI_Datatype tout, int root) {
  const bool here = out == MPI_IN_PLACE;
  if (r.me() != static_cast<std::size_t>(root)) {
    const Bytes& to = r.keep(Bytes::to_receive(out, {nout}, tout), true);
    r.scatter(nullptr, to.at(), to.count(0), root);
    return Way::kWeft;
  }
  const Bytes& from = r.keep(Bytes::to_send(in, {nin, r.ranks()}, tin));
  r.scatter(from.at(),
            here ? from.block(r.me()) : r.keep(Bytes::to_receive(out, {nout}, tout), true).at(),
            from.count(0), root);
  return Way::kWeft;
}

// Only the root knows the sizes of all blocks, so these are messages.
Way gatherv(Running& r, const void* in, int nin, MPI_Datatype tin, void* out, const int counts[],
            const int at[], MPI_Datatype tout, int root) {
  std::vector<Message> messages;
  if (in != MPI_IN_PLACE) {
    const Bytes& from = r.keep(Bytes::to_send(in, {nin}, tin));
    if (from.count(0))
      messages.push_back(Message::to(root, from.at(), from.count(0), DType::kUInt8));
  }
  if (r.me() == static_cast<std::size_t>(root)) {
    const bool here = in == MPI_IN_PLACE;
    const Bytes& to = r.keep(Bytes::to_receive(out, {0, r.ranks(), counts, at}, tout, here), true);
    for (int p = 0; p < r.ranks(); ++p) {
      const auto b = static_cast<std::size_t>(p);
      if (to.count(b) && !(here && p == root))
        messages.push_back(Message::from(p, to.block(b), to.count(b), DType::kUInt8));
    }
  }
  r.exchange(messages);
  return Way::kWeft;
}

Way scatterv(Running& r, const void* in, const int counts[], const int at[], MPI_Datatype tin,
             void* out, int nout, MPI_Datatype tout, int root) {
  std::vector<Message> messages;
  const bool here = out == MPI_IN_PLACE;
  if (r.me() == static_cast<std::size_t>(root)) {
    const Bytes& from = r.keep(Bytes::to_send(in, {0, r.ranks(), counts, at}, tin));
    for (int p = 0; p < r.ranks(); ++p) {
      const auto b = static_cast<std::size_t>(p);
      if (from.count(b) && !(here && p == root))
        messages.push_back(Message::to(p, from.block(b), from.count(b), DType::kUInt8));
    }
  }
  if (!here) {
    const Bytes& to = r.keep(Bytes::to_receive(out, {nout}, tout), true);
    if (to.count(0)) messages.push_back(Message::from(root, to.at(), to.count(0), DType::kUInt8));
  }
  r.exchange(messages);
  return Way::kWeft;
}

Way alltoall(Running& r, const void* in, int nin, MPI_Datatype tin, void* out, int nout,
             MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  const Bytes& to = r.keep(Bytes::to_receive(out, {nout, r.ranks()}, tout, here), true);
  const std::byte* const from =
      here ? to.at() : r.keep(Bytes::to_send(in, {nin, r.ranks()}, tin)).at();
  r.all_to_all(from, to.at(), to.count(0));
  return Way::kWeft;
}

// In place, what is sent is copied first. Blocks that are sent may overlap.
Way alltoallv(Running& r, const void* in, const int nin[], const int atin[], MPI_Datatype tin,
              void* out, const int nout[], const int atout[], MPI_Datatype tout) {
  const bool here = in == MPI_IN_PLACE;
  const Layout received{0, r.ranks(), nout, atout}, sent{0, r.ranks(), nin, atin};
  const Bytes& from = here ? r.keep(Bytes::to_send(out, received, tout, true))
                           : r.keep(Bytes::to_send(in, sent, tin));
  const Bytes& to = r.keep(Bytes::to_receive(out, received, tout), true);
  r.all_to_all_v(from.at(), from.blocks(), to.at(), to.blocks());
  return Way::kWeft;
}

}  // namespace
}  // namespace weft::mpi

using namespace weft;       // NOLINT: MPI's names are global
using namespace weft::mpi;  // NOLINT

// NAME: MPI's, behind "MPI_"; START: the function above; TYPED: the parameters with types; then
// their names without the communicator, which is the last parameter.
#define WEFT_COLLECTIVE(NAME, INAME, START, TYPED, ...)                                  \
  static Count count_##NAME("MPI_" #NAME), count_##INAME("MPI_" #INAME);                 \
  extern "C" int MPI_##NAME(WEFT_UNWRAP TYPED, MPI_Comm comm) {                          \
    return run(                                                                          \
        count_##NAME, comm, [&](Running& r) { return START(r, __VA_ARGS__); },           \
        [&] { return PMPI_##NAME(__VA_ARGS__, comm); });                                 \
  }                                                                                      \
  extern "C" int MPI_##INAME(WEFT_UNWRAP TYPED, MPI_Comm comm, MPI_Request* request) {   \
    return run(                                                                          \
        count_##INAME, comm, request, [&](Running& r) { return START(r, __VA_ARGS__); }, \
        [&] { return PMPI_##INAME(__VA_ARGS__, comm, request); });                       \
  }
#define WEFT_UNWRAP(...) __VA_ARGS__

WEFT_COLLECTIVE(Bcast, Ibcast, bcast, (void* data, int count, MPI_Datatype type, int root), data,
                count, type, root)
WEFT_COLLECTIVE(Allreduce, Iallreduce, allreduce,
                (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op), in, out,
                count, type, op)
WEFT_COLLECTIVE(Reduce, Ireduce, weft::mpi::reduce,
                (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root), in,
                out, count, type, op, root)
WEFT_COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block, reduce_scatter_block,
                (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op), in, out,
                count, type, op)
WEFT_COLLECTIVE(Reduce_scatter, Ireduce_scatter, reduce_scatter,
                (const void* in, void* out, const int counts[], MPI_Datatype type, MPI_Op op), in,
                out, counts, type, op)
WEFT_COLLECTIVE(Allgather, Iallgather, allgather,
                (const void* in, int nin, MPI_Datatype tin, void* out, int nout, MPI_Datatype tout),
                in, nin, tin, out, nout, tout)
WEFT_COLLECTIVE(Allgatherv, Iallgatherv, allgatherv,
                (const void* in, int nin, MPI_Datatype tin, void* out, const int counts[],
                 const int at[], MPI_Datatype tout),
                in, nin, tin, out, counts, at, tout)
WEFT_COLLECTIVE(Gather, Igather, gather,
                (const void* in, int nin, MPI_Datatype tin, void* out, int nout, MPI_Datatype tout,
                 int root),
                in, nin, tin, out, nout, tout, root)
WEFT_COLLECTIVE(Gatherv, Igatherv, gatherv,
                (const void* in, int nin, MPI_Datatype tin, void* out, const int counts[],
                 const int at[], MPI_Datatype tout, int root),
                in, nin, tin, out, counts, at, tout, root)
WEFT_COLLECTIVE(Scatter, Iscatter, scatter,
                (const void* in, int nin, MPI_Datatype tin, void* out, int nout, MPI_Datatype tout,
                 int root),
                in, nin, tin, out, nout, tout, root)
WEFT_COLLECTIVE(Scatterv, Iscatterv, scatterv,
                (const void* in, const int counts[], const int at[], MPI_Datatype tin, void* out,
                 int nout, MPI_Datatype tout, int root),
                in, counts, at, tin, out, nout, tout, root)
WEFT_COLLECTIVE(Alltoall, Ialltoall, alltoall,
                (const void* in, int nin, MPI_Datatype tin, void* out, int nout, MPI_Datatype tout),
                in, nin, tin, out, nout, tout)
WEFT_COLLECTIVE(Alltoallv, Ialltoallv, alltoallv,
                (const void* in, const int nin[], const int atin[], MPI_Datatype tin, void* out,
                 const int nout[], const int atout[], MPI_Datatype tout),
                in, nin, atin, tin, out, nout, atout, tout)

static Count count_Barrier("MPI_Barrier"), count_Ibarrier("MPI_Ibarrier");
extern "C" int MPI_Barrier(MPI_Comm comm) {
  return run(count_Barrier, comm, barrier, [&] { return PMPI_Barrier(comm); });
}
extern "C" int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return run(count_Ibarrier, comm, request, barrier, [&] { return PMPI_Ibarrier(comm, request); });
}
