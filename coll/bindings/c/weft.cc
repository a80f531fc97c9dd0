// Errors, jobs, communicators and memory of weft.h. This file does not depend on the calls
// (calls.cc).
#include <algorithm>
#include <cstring>
#include <string_view>

#include "coll/bindings/c/handles.h"
#include "transport/job/unique_id.h"

namespace weft::c {
namespace {

struct LastError {
  std::string text;
  Rank rank = kNoRank;
};
thread_local LastError last_error;

static_assert(static_cast<int>(Code::kInternal) == WEFT_INTERNAL &&
              static_cast<int>(Code::kPeerFailed) == WEFT_PEER_FAILED);
static_assert(static_cast<int>(DType::kBool) == WEFT_BOOL &&
              static_cast<int>(DType::kInt8) == WEFT_INT8);
static_assert(static_cast<int>(Collective::kAllToAll) == WEFT_ALL_TO_ALL &&
              static_cast<int>(Collective::kSendRecv) == WEFT_SEND_RECV);
static_assert(sizeof(weft_unique_id_t) == kMostUniqueId + 1);

weft_result_t check_options(const weft_options_t& o) {
  constexpr std::size_t kFirst = offsetof(weft_options_t, progress_thread);
  if (o.size >= kFirst && o.version / 100 != WEFT_VERSION / 100)
    return failed(WEFT_VERSION_MISMATCH,
                  fmt::format("the program was compiled with weft.h {}.{}.{}, but libweft is "
                              "{}.{}.{}: recompile the program, or load the matching library",
                              o.version / 10000, o.version / 100 % 100, o.version % 100,
                              WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH));
  if (o.size != sizeof o)
    return failed(WEFT_INVALID_ARGUMENT,
                  fmt::format("weft_options_t has {} bytes, this version expects {}: initialize it "
                              "with WEFT_OPTIONS_INIT",
                              o.size, sizeof o));
  return WEFT_OK;
}

bool flag(const char* name, std::int32_t value, bool otherwise) {
  if (value == WEFT_DEFAULT) return otherwise;
  if (value != WEFT_ON && value != WEFT_OFF)
    throw StatusError({Code::kInvalidArgument,
                       fmt::format("weft_options_t: {} is {}, which is not one of WEFT_DEFAULT, "
                                   "WEFT_ON, WEFT_OFF",
                                   name, value)});
  return value == WEFT_ON;
}

std::chrono::milliseconds time(const char* name, std::int64_t ms,
                               std::chrono::milliseconds otherwise) {
  if (ms < 0)
    throw StatusError(
        {Code::kInvalidArgument, fmt::format("weft_options_t: {} is {}, below 0", name, ms)});
  return ms == 0 ? otherwise : std::chrono::milliseconds(ms);
}

WorldOptions options_of(const weft_options_t* given) {
  WorldOptions o;
  if (!given) return o;
  if (given->transport) o.transport = given->transport;
  if (given->algorithm) o.algorithm = given->algorithm;
  if (given->cross_rail) o.cross_rail = given->cross_rail;
  o.timeout = time("timeout_ms", given->timeout_ms, o.timeout);
  o.slow = time("slow_ms", given->slow_ms, o.slow);
  o.rail_gbps = given->rail_gbps;
  o.progress_thread = flag("progress_thread", given->progress_thread, o.progress_thread);
  o.integrity = flag("integrity", given->integrity, o.integrity);
  o.failover = flag("failover", given->failover, o.failover);
  o.spread = flag("spread", given->spread, o.spread);
  o.counters = flag("counters", given->counters, o.counters);
  o.deterministic = flag("deterministic", given->deterministic, o.deterministic);
  return o;
}

// Creates a World with the given options, by calling `join`.
template <typename Join>
weft_result_t make_world(const weft_options_t* options, weft_world_t** world, Join&& join) {
  return guarded([&] {
    if (options)
      if (const auto wrong = check_options(*options)) return wrong;
    auto made = std::make_unique<weft_world>(weft_world{join(options_of(options))});
    *world = made.release();
    return WEFT_OK;
  });
}

Codec codec_of(weft_codec_t codec) {
  if (codec == WEFT_INT8_BLOCKS || codec == WEFT_FP8_BLOCKS) return static_cast<Codec>(codec);
  throw StatusError({Code::kInvalidArgument,
                     fmt::format("{} is not a weft_codec_t (1, 2)", static_cast<int>(codec))});
}

// Passes a communicator to the caller; null for an empty one.
template <typename Make>
weft_result_t make_comm(weft_comm_t** comm, Make&& make) {
  return guarded([&] {
    auto made = std::make_unique<weft_comm>(weft_comm{make()});
    *comm = made->comm ? made.release() : nullptr;
  });
}

}  // namespace

weft_result_t failed(weft_result_t result, std::string text, Rank rank) noexcept {
  last_error = {std::move(text), rank};
  return result;
}

weft_result_t failed(const Status& status) noexcept {
  const auto result = static_cast<weft_result_t>(status.code());
  try {
    return failed(result, status.to_string(), status.rank());
  } catch (...) {
    return failed(result, {}, status.rank());
  }
}

weft_result_t caught() noexcept {
  try {
    try {
      throw;
    } catch (const StatusError& e) {
      return failed(e.status());
    } catch (const Error& e) {
      return failed(WEFT_SETUP, e.what());
    } catch (const std::bad_alloc&) {
      return failed(WEFT_NO_MEMORY, "out of memory");
    } catch (const std::exception& e) {
      return failed(WEFT_INTERNAL, e.what());
    }
  } catch (...) {
    return failed(WEFT_INTERNAL, {});
  }
}

weft_result_t null_argument(const char* function, const char* argument) noexcept {
  return guarded([&] {
    return failed(WEFT_INVALID_ARGUMENT, fmt::format("{}: {} is NULL", function, argument));
  });
}

}  // namespace weft::c

using weft::c::failed;
using weft::c::guarded;

// ---- errors and versions ------------------------------------------------------------------

const char* weft_last_error(void) { return weft::c::last_error.text.c_str(); }
int weft_last_error_rank(void) { return weft::c::last_error.rank; }
int weft_version(void) { return WEFT_VERSION; }

const char* weft_result_name(weft_result_t result) {
  switch (static_cast<int>(result)) {
    case WEFT_SETUP:
      return "set-up failed";
    case WEFT_NO_MEMORY:
      return "out of memory";
    case WEFT_VERSION_MISMATCH:
      return "versions differ";
    default:
      return result >= WEFT_OK && result <= WEFT_INTERNAL
                 ? weft::name(static_cast<weft::Code>(result))
                 : "not a weft_result_t";
  }
}

// ---- jobs ---------------------------------------------------------------------------------

weft_result_t weft_world_from_environment(const weft_options_t* options, weft_world_t** world) {
  WEFT_C_NOT_NULL(world);
  return weft::c::make_world(
      options, world, [](const weft::WorldOptions& o) { return weft::World::from_environment(o); });
}

weft_result_t weft_unique_id_create(weft_unique_id_t* id) {
  WEFT_C_NOT_NULL(id);
  return guarded([&] {
    const std::string text = weft::World::unique_id();
    std::memset(id->bytes, 0, sizeof id->bytes);
    std::memcpy(id->bytes, text.data(), std::min(text.size(), sizeof id->bytes - 1));
  });
}

weft_result_t weft_world_from_id(const weft_unique_id_t* id, int rank, int size,
                                 const weft_options_t* options, weft_world_t** world) {
  WEFT_C_NOT_NULL(id);
  WEFT_C_NOT_NULL(world);
  if (size < 1 || rank < 0 || rank >= size)
    return guarded([&] {
      return failed(WEFT_INVALID_ARGUMENT,
                    fmt::format("weft_world_from_id: rank {} of {} ranks does not exist: ranks "
                                "count from 0 to size - 1",
                                rank, size));
    });
  return weft::c::make_world(options, world, [&](const weft::WorldOptions& o) {
    const std::string_view text(id->bytes, strnlen(id->bytes, sizeof id->bytes));
    return weft::World::from_id(text, rank, size, o);
  });
}

void weft_world_free(weft_world_t* world) { delete world; }

weft_result_t weft_world_rank(const weft_world_t* world, int* rank) {
  WEFT_C_NOT_NULL(world);
  WEFT_C_NOT_NULL(rank);
  return guarded([&] { *rank = world->world->rank(); });
}

weft_result_t weft_world_size(const weft_world_t* world, int* size) {
  WEFT_C_NOT_NULL(world);
  WEFT_C_NOT_NULL(size);
  return guarded([&] { *size = world->world->size(); });
}

weft_result_t weft_world_failure(const weft_world_t* world) {
  WEFT_C_NOT_NULL(world);
  return guarded([&] { return weft::c::result_of(world->world->failure()); });
}

void weft_world_abort(weft_world_t* world, const char* reason) {
  if (world) world->world->abort(reason ? reason : "no reason given");
}

weft_result_t weft_world_shrink(weft_world_t* world, weft_world_t** next) {
  WEFT_C_NOT_NULL(world);
  WEFT_C_NOT_NULL(next);
  return weft::c::make_world(nullptr, next,
                             [&](const weft::WorldOptions&) { return world->world->shrink(); });
}

weft_result_t weft_world_former_rank(const weft_world_t* world, int rank, int* former) {
  WEFT_C_NOT_NULL(world);
  WEFT_C_NOT_NULL(former);
  return guarded([&] {
    const auto& all = world->world->former_ranks();
    if (rank < 0 || static_cast<std::size_t>(rank) >= all.size())
      return failed(WEFT_INVALID_ARGUMENT,
                    all.empty() ? std::string("this World was not made by weft_world_shrink()")
                                : fmt::format("rank {} is not a rank of this World (0..{})", rank,
                                              all.size() - 1));
    *former = all[static_cast<std::size_t>(rank)];
    return WEFT_OK;
  });
}

// ---- communicators ------------------------------------------------------------------------

weft_result_t weft_world_comm(weft_world_t* world, weft_comm_t** comm) {
  WEFT_C_NOT_NULL(world);
  WEFT_C_NOT_NULL(comm);
  return weft::c::make_comm(comm, [&] { return world->world->world(); });
}

weft_result_t weft_host_comm(weft_world_t* world, weft_comm_t** comm) {
  WEFT_C_NOT_NULL(world);
  WEFT_C_NOT_NULL(comm);
  return weft::c::make_comm(comm, [&] { return world->world->host(); });
}

weft_result_t weft_rail_comm(weft_world_t* world, weft_comm_t** comm) {
  WEFT_C_NOT_NULL(world);
  WEFT_C_NOT_NULL(comm);
  return weft::c::make_comm(comm, [&] { return world->world->rail(); });
}

void weft_comm_free(weft_comm_t* comm) { delete comm; }

weft_result_t weft_comm_rank(const weft_comm_t* comm, int* rank) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(rank);
  return guarded([&] { *rank = comm->comm.rank(); });
}

weft_result_t weft_comm_size(const weft_comm_t* comm, int* size) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(size);
  return guarded([&] { *size = comm->comm.size(); });
}

weft_result_t weft_comm_world_rank(const weft_comm_t* comm, int rank, int* world_rank) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(world_rank);
  return guarded([&] { *world_rank = comm->comm.world_rank(rank); });
}

weft_result_t weft_comm_split(weft_comm_t* comm, int color, int key, weft_comm_t** part) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(part);
  return weft::c::make_comm(part, [&] { return comm->comm.split(color, key); });
}

weft_result_t weft_comm_duplicate(weft_comm_t* comm, weft_comm_t** copy) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(copy);
  return weft::c::make_comm(copy, [&] { return comm->comm.duplicate(); });
}

weft_result_t weft_comm_subset(weft_comm_t* comm, const int* ranks, size_t count,
                               weft_comm_t** part) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(part);
  if (count > 0) WEFT_C_NOT_NULL(ranks);
  return weft::c::make_comm(
      part, [&] { return comm->comm.subset(std::span<const weft::Rank>(ranks, count)); });
}

weft_result_t weft_comm_on_stream(weft_comm_t* comm, void* stream, weft_comm_t** bound) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(bound);
  return weft::c::make_comm(bound, [&] { return comm->comm.on(stream); });
}

weft_result_t weft_comm_compressed(weft_comm_t* comm, weft_codec_t codec, float* residual,
                                   weft_comm_t** bound) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(bound);
  return weft::c::make_comm(bound, [&] {
    return comm->comm.compressed({weft::c::codec_of(codec), residual});
  });
}

weft_result_t weft_error_bound(weft_codec_t codec, weft_collective_t collective, weft_op_t op,
                               int ranks, double* bound) {
  WEFT_C_NOT_NULL(bound);
  return guarded([&] {
    *bound = weft::error_bound(weft::c::codec_of(codec), static_cast<weft::Collective>(collective),
                               weft::c::reduction_of(op).op, ranks);
  });
}

weft_result_t weft_comm_set_algorithm(weft_comm_t* comm, weft_collective_t collective,
                                      const char* name) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(name);
  return guarded([&] {
    if (static_cast<int>(collective) < 0 || static_cast<int>(collective) >= weft::kCollectives)
      return failed(WEFT_INVALID_ARGUMENT,
                    fmt::format("{} is not a weft_collective_t", static_cast<int>(collective)));
    comm->comm.set_algorithm(static_cast<weft::Collective>(collective), name);
    return WEFT_OK;
  });
}

weft_result_t weft_comm_last_algorithm(const weft_comm_t* comm, char* name, size_t bytes) {
  WEFT_C_NOT_NULL(comm);
  WEFT_C_NOT_NULL(name);
  return guarded([&] {
    if (bytes == 0) return failed(WEFT_INVALID_ARGUMENT, "weft_comm_last_algorithm: bytes is 0");
    const std::string text = comm->comm.last_algorithm();
    const std::size_t length = std::min(text.size(), bytes - 1);
    std::memcpy(name, text.data(), length);
    name[length] = '\0';
    return WEFT_OK;
  });
}

weft_result_t weft_comm_set_deterministic(weft_comm_t* comm, int on) {
  WEFT_C_NOT_NULL(comm);
  return guarded([&] { comm->comm.set_deterministic(on != 0); });
}

// ---- memory -------------------------------------------------------------------------------

weft_result_t weft_alloc(size_t bytes, void** memory) {
  WEFT_C_NOT_NULL(memory);
  return guarded([&] { *memory = weft::alloc(bytes); });
}

void weft_free(void* memory) { weft::free(memory); }
