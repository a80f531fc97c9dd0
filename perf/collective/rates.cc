// Measures memory and rails for the lower bounds. Does not compute the bounds.
#include "perf/collective/rates.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "coll/runtime/internals.h"
#include "topo/base/clock.h"
#include "transport/launch/failures.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft {
namespace {

// The same loop for several instruction sets: the memory bound must not depend on the compiler's
// target flags.
#define WEFT_ADD(name)                                                                  \
  void name(float* __restrict out, const float* a, const float* b, std::size_t count) { \
    for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];                       \
  }
WEFT_ADD(add_plain)
#if defined(__x86_64__)
__attribute__((target("avx2"))) WEFT_ADD(add_avx2)
#if defined(__clang__)
__attribute__((target("avx512f"))) WEFT_ADD(add_avx512)
#else
__attribute__((target("avx512f,prefer-vector-width=512"))) WEFT_ADD(add_avx512)
#endif
#endif
#undef WEFT_ADD

void add(float* out, const float* a, const float* b, std::size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return add_avx512(out, a, b, count);
  if (__builtin_cpu_supports("avx2")) return add_avx2(out, a, b, count);
#endif
  add_plain(out, a, b, count);
}

#if defined(__SSE2__)
constexpr bool kHaveStreams = true;
void add_stream(float* out, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 4)
    _mm_stream_ps(out + i, _mm_add_ps(_mm_load_ps(a + i), _mm_load_ps(b + i)));
  _mm_sfence();
}
void copy_stream(float* out, const float* a, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 4) _mm_stream_ps(out + i, _mm_load_ps(a + i));
  _mm_sfence();
}
#else
constexpr bool kHaveStreams = false;
void add_stream(float* out, const float* a, const float* b, std::size_t c) { add(out, a, b, c); }
void copy_stream(float* out, const float* a, std::size_t c) { std::memcpy(out, a, c * 4); }
#endif

std::vector<double> gather(Job& job, const std::vector<double>& mine) {
  std::vector<double> all;
  for (const std::string& text :
       job.all_gather({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double)})) {
    std::vector<double> theirs(text.size() / sizeof(double));
    std::memcpy(theirs.data(), text.data(), theirs.size() * sizeof(double));
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

// From the first start to the last end, on the machine's common clock: ranks that share a core must
// not count as if each had a core.
double span_us(const std::vector<double>& starts_and_ends) {
  double first = starts_and_ends[0], last = starts_and_ends[1];
  for (std::size_t i = 0; i < starts_and_ends.size(); i += 2) {
    first = std::min(first, starts_and_ends[i]);
    last = std::max(last, starts_and_ends[i + 1]);
  }
  return last - first;
}

template <class Body>
double best_GBps(World& world, Communicator& comm, std::uint64_t bytes, bool writes,
                 const Body& body) {
  constexpr std::uint64_t kWork = 8 << 20;  // long enough to hide jitter of the start
  const std::uint64_t repeats = std::max<std::uint64_t>(kWork / bytes, 1);
  const int tries = bytes > kWork ? 2 : 3;
  double best = 0;
  for (int t = 0; t < tries; ++t) {
    require(comm.barrier());
    const double start = now_us();
    for (std::uint64_t i = 0; writes && i < repeats; ++i) {
      body();
      asm volatile("" ::: "memory");
    }
    const double span = span_us(gather(job_of(world), {start, now_us()}));
    best = std::max(best, static_cast<double>(bytes * repeats) / (span * 1e3));
  }
  return best;
}

}  // namespace

MemoryRate measure_memory(World& world, Communicator& comm, std::uint64_t bytes, int writers) {
  constexpr std::uint64_t kSmallest = 64 << 10;
  bytes = std::max(bytes, kSmallest) / 64 * 64;
  const Buffer from(bytes, false), to(bytes, false);
  const auto* in = reinterpret_cast<const float*>(from.data());
  auto* out = reinterpret_cast<float*>(to.data());
  const std::size_t count = bytes / sizeof(float);
  const float* other = in + count / 2;  // two sources within one buffer: the same footprint
  const bool writes = comm.rank() < writers;
  const auto best = [&](std::uint64_t written, const auto& body) {
    return best_GBps(world, comm, written, writes, body);
  };
  MemoryRate rate;
  rate.copy_GBps = best(bytes, [&] { std::memcpy(out, in, bytes); });
  rate.reduce_GBps = best(bytes / 2, [&] { add(out, in, other, count / 2); });
  if (kHaveStreams) {
    rate.copy_GBps = std::max(rate.copy_GBps, best(bytes, [&] { copy_stream(out, in, count); }));
    rate.reduce_GBps =
        std::max(rate.reduce_GBps, best(bytes / 2, [&] { add_stream(out, in, other, count / 2); }));
  }
  return rate;
}

RailRate measure_rails(World& world, Communicator& comm) {
  const Topology& topology = world.topology();
  if (topology.nhosts() < 2) return {};
  constexpr std::size_t kBytes = 4 << 20;
  constexpr int kRounds = 4;  // the first round is a warm-up
  const Rank me = world.rank();
  const int host = topology.host(me), partner_host = host ^ 1;
  const auto local = static_cast<std::size_t>(topology.local(me));
  const bool takes_part =
      partner_host < topology.nhosts() && local < topology.ranks_of(partner_host).size();
  const std::size_t pairs = std::min(topology.ranks_of(0).size(), topology.ranks_of(1).size());
  const Buffer from(takes_part ? kBytes : 0, false), to(takes_part ? kBytes : 0, false);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    require(comm.barrier());
    const double start = now_us();
    if (takes_part) {
      const Rank partner = topology.ranks_of(partner_host)[local];
      Request recv = comm.recv_async(to.data(), kBytes / 4, DType::kInt32, partner);
      Request send = comm.send_async(from.data(), kBytes / 4, DType::kInt32, partner);
      require(send.wait());
      require(recv.wait());
    }
    // Clocks of different hosts are not synchronized, so use the longest span of any rank.
    double longest = 0;
    for (double span : gather(job_of(world), {now_us() - start})) longest = std::max(longest, span);
    if (round > 0) best = std::max(best, static_cast<double>(pairs * kBytes * 8) / (longest * 1e3));
  }
  return {best / topology.nrails(), false};
}

}  // namespace weft
