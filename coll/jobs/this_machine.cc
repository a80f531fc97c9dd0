// Measures a core, and reads the rates of NICs. This file is independent of jobs.
#include "coll/jobs/this_machine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

#include "coll/engine/kernels.h"
#include "topo/discover.h"

namespace weft {
namespace {

// A buffer that exceeds the caches, in slices of the engine's size.
constexpr std::size_t kAll = std::size_t{64} << 20, kSlice = std::size_t{64} << 10;

// The higher rate of two passes over memory, in GB/s.
template <class Body>
double rate_of(std::vector<std::byte>& to, const std::vector<std::byte>& from, const Body& body) {
  double best = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at < kAll; at += kSlice) body(&to[at], &from[at]);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kAll) / took.count() / 1e9);
  }
  return best;
}

}  // namespace

Machine this_machine() {
  Machine m = machine_named("cpu");
  m.name = "this";
  double slowest = 0;
  for (const Nic& nic : choose_rails(discover_host()))
    if (nic.up && nic.rate_gbps > 0) slowest = slowest > 0 ? std::min(slowest, nic.rate_gbps) : nic.rate_gbps;
  if (slowest > 0) m.rail.gbps = slowest;
  std::vector<std::byte> from(kAll, std::byte{1}), to(kAll, std::byte{1});
  const ReduceFn add = reduce_kernel(DType::kFloat32, RedOp::kSum);
  m.reduce_GBps = rate_of(to, from, [add](std::byte* out, const std::byte* in) {
    const void* sources[] = {out, in};
    add(out, sources, 2, kSlice / sizeof(float));
  });
  m.copy_GBps =
      rate_of(to, from, [](std::byte* out, const std::byte* in) { std::memcpy(out, in, kSlice); });
  return m;
}

}  // namespace weft
