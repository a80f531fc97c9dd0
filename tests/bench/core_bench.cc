// Measures how fast a core reduces and copies bytes from memory: the rates of the machine "cpu"
// (coll/machine.cc). Use medians of interleaved repetitions:
//   weft_bench_core --benchmark_repetitions=15 --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "coll/engine/kernels.h"

namespace weft {
namespace {

// The total is twice the size of the caches; slices have the engine's size.
constexpr std::size_t kAll = std::size_t{128} << 20, kSlice = std::size_t{64} << 10;

template <class Body>
void over_memory(benchmark::State& state, const Body& body) {
  std::vector<std::byte> from(kAll, std::byte{1}), to(kAll, std::byte{1});
  std::size_t at = 0;
  for (auto _ : state) {
    body(&to[at], &from[at]);
    benchmark::ClobberMemory();
    at = (at + kSlice) % kAll;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kSlice));
}

void reduce(benchmark::State& state) {
  const ReduceFn add = reduce_kernel(DType::kFloat32, RedOp::kSum);
  over_memory(state, [add](std::byte* to, const std::byte* from) {
    const void* sources[] = {to, from};
    add(to, sources, 2, kSlice / sizeof(float));
  });
}

void copy(benchmark::State& state) {
  over_memory(state, [](std::byte* to, const std::byte* from) { std::memcpy(to, from, kSlice); });
}

BENCHMARK(reduce);
BENCHMARK(copy);

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
