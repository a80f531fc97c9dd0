// Support for kernels that are written once for GPU and CPU.
//
// A kernel is a struct whose members are its parameters. It has either items() and item(i), for
// independent work, or teams() and team(t, i), where the 32 lanes of a warp compute a row together.
// pointers(f) calls f for every pointer into device memory, so that the fake device can translate
// it. On the CPU a team is a loop over lanes: tests without a GPU run every line of a kernel. Only
// the launches in cuda_launch.h need a GPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "coll/gpu/arithmetic.h"
#include "train/base/types.h"
#include "transport/gpu/device.h"

namespace weft::train::kernels {

using Index = std::size_t;

// ---- elements ------------------------------------------------------------------------------

template <class E>
struct Codec : device_arithmetic::Plain<typename E::Stored> {};
template <>
struct Codec<Bf16> : device_arithmetic::BFloat {};
template <>
struct Codec<Fp16> : device_arithmetic::Half {};
// The element of statistics and optimizer state for E.
template <class E>
struct WideOf {
  using Element = Fp32;
};
template <>
struct WideOf<Fp64> {
  using Element = Fp64;
};

// Number of elements per vector access: 16 bytes of the model's element.
template <class E>
inline constexpr int kPack = static_cast<int>(16 / sizeof(typename E::Stored));

template <class S>
WEFT_HD bool aligned(const S* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// Loads x[0, n) from p, n <= N, and sets the rest of x to zero. If E is wider than the model's
// element, a pack takes several 16-byte accesses.
template <class E, int N, class V>
WEFT_HD void load(V (&x)[N], const typename E::Stored* p, Index n) {
  using S = typename E::Stored;
  using device_arithmetic::Vector;
  constexpr int kEach = static_cast<int>(sizeof(Vector) / sizeof(S));
  if (N % kEach == 0 && n == static_cast<Index>(N) && aligned(p)) {
    WEFT_UNROLL
    for (int i = 0; i < N; i += kEach) {
      const Vector raw = device_arithmetic::load_vector(p + i);
      S each[kEach];
      memcpy(each, &raw, sizeof raw);
      WEFT_UNROLL
      for (int k = 0; k < kEach && i + k < N; ++k)
        x[i + k] = static_cast<V>(Codec<E>::widen(each[k]));
    }
    return;
  }
  WEFT_UNROLL
  for (int i = 0; i < N; ++i)
    x[i] = static_cast<Index>(i) < n ? static_cast<V>(Codec<E>::widen(p[i])) : V(0);
}

template <class E, int N, class V>
WEFT_HD void store(typename E::Stored* p, const V (&x)[N], Index n) {
  using S = typename E::Stored;
  using device_arithmetic::Vector;
  constexpr int kEach = static_cast<int>(sizeof(Vector) / sizeof(S));
  const auto narrow = [](V v) { return Codec<E>::narrow(static_cast<typename E::Value>(v)); };
  if (N % kEach == 0 && n == static_cast<Index>(N) && aligned(p)) {
    WEFT_UNROLL
    for (int i = 0; i < N; i += kEach) {
      S each[kEach];
      WEFT_UNROLL
      for (int k = 0; k < kEach && i + k < N; ++k) each[k] = narrow(x[i + k]);
      Vector raw;
      memcpy(&raw, each, sizeof raw);
      device_arithmetic::store_vector(p + i, raw);
    }
    return;
  }
  WEFT_UNROLL
  for (int i = 0; i < N; ++i)
    if (static_cast<Index>(i) < n) p[i] = narrow(x[i]);
}

template <class E>
WEFT_HD typename E::Value get(const typename E::Stored* p) {
  return Codec<E>::widen(*p);
}
template <class E>
WEFT_HD void put(typename E::Stored* p, typename E::Value v) {
  *p = Codec<E>::narrow(v);
}

WEFT_HD Index least(Index a, Index b) { return a < b ? a : b; }

// ---- functions ------------------------------------------------------------------------------

#ifdef __CUDA_ARCH__
WEFT_HD float exponential(float x) { return __expf(x); }
WEFT_HD double exponential(double x) { return exp(x); }
WEFT_HD float logarithm(float x) { return logf(x); }
WEFT_HD double logarithm(double x) { return log(x); }
WEFT_HD float hyperbolic_tangent(float x) { return tanhf(x); }
WEFT_HD double hyperbolic_tangent(double x) { return tanh(x); }
WEFT_HD float root(float x) { return sqrtf(x); }
WEFT_HD double root(double x) { return sqrt(x); }
WEFT_HD double times_power_of_two(double x, int power) { return scalbn(x, power); }
#else
template <class V>
WEFT_HD V exponential(V x) {
  return std::exp(x);
}
template <class V>
WEFT_HD V logarithm(V x) {
  return std::log(x);
}
template <class V>
WEFT_HD V hyperbolic_tangent(V x) {
  return std::tanh(x);
}
template <class V>
WEFT_HD V root(V x) {
  return std::sqrt(x);
}
WEFT_HD double times_power_of_two(double x, int power) { return std::ldexp(x, power); }
#endif

// ---- teams ----------------------------------------------------------------------------------

inline constexpr int kLanes = 32;

// A team on the CPU: a value per lane is an array, and each() is a loop. join() reduces each group
// of kGroup adjacent lanes in the order of the GPU's butterfly shuffle, so that sums have the same
// bits. Afterwards every lane has its group's result, and join() returns the result of lane 0's
// group.
struct HostTeam {
  template <class V>
  struct PerLane {
    V all[kLanes];
    V& operator[](int lane) { return all[lane]; }
  };
  template <class F>
  void each(F f) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  }
  template <int kGroup = kLanes, class V, class Join>
  V join(PerLane<V>& x, Join together) {
    for (int half = kGroup / 2; half > 0; half /= 2) {
      PerLane<V> before = x;
      for (int lane = 0; lane < kLanes; ++lane)
        x[lane] = together(before[lane], before[lane ^ half]);
    }
    return x[0];
  }
};

#ifdef __CUDACC__
struct GpuTeam {
  template <class V>
  struct PerLane {
    V mine;
    __device__ V& operator[](int) { return mine; }
  };
  template <class F>
  __device__ __forceinline__ void each(F f) {
    f(static_cast<int>(threadIdx.x % kLanes));
  }
  template <int kGroup = kLanes, class V, class Join>
  __device__ __forceinline__ V join(PerLane<V>& x, Join together) {
    WEFT_UNROLL
    for (int half = kGroup / 2; half > 0; half /= 2)
      x.mine = together(x.mine, __shfl_xor_sync(0xffffffffu, x.mine, half));
    return x.mine;
  }
};
#endif

struct Plus {
  template <class V>
  WEFT_HD V operator()(V a, V b) const {
    return a + b;
  }
};
struct Larger {
  template <class V>
  WEFT_HD V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};

// Reduces the results of f(lane).
template <class V, class Team, class F, class Join>
WEFT_HD V joined(Team& t, F f, Join together) {
  typename Team::template PerLane<V> x;
  t.each([&](int lane) { x[lane] = f(lane); });
  return t.join(x, together);
}
// Calls f() on one lane.
template <class Team, class F>
WEFT_HD void once(Team& t, F f) {
  t.each([&](int lane) {
    if (lane == 0) f();
  });
}

// ---- what kernels have in common ------------------------------------------------------------

using Token = std::int32_t;

template <class E>
struct Types {
  using S = typename E::Stored;
  using V = typename E::Value;
  using W = typename WideOf<E>::Element;
  static constexpr Index kP = static_cast<Index>(kPack<E>);
  static WEFT_HD Index packs(Index width) { return (width + kP - 1) / kP; }
};

// At the start of each kernel: declares its types, and its name in traces.
#define WEFT_KERNEL(title)            \
  using T = Types<E>;                 \
  using S = typename T::S;            \
  using V = typename T::V;            \
  using W = typename T::W;            \
  static constexpr int kN = kPack<E>; \
  static constexpr const char* kTitle = title
// Lists the kernel's pointers: f(a), f(b), ...
#define WEFT_POINTERS(...) \
  template <class F>       \
  void pointers(F f) {     \
    __VA_ARGS__;           \
  }                        \
  static_assert(true)

// Work items are packs: pack(first, n) computes elements [first, first + n) of `count`.
#define WEFT_PACKS(count)                                 \
  WEFT_HD Index items() const { return T::packs(count); } \
  WEFT_HD void item(Index i) const { pack(i* kN, least(kN, (count)-i* kN)); }
// Packs of rows: pack(row, column, n) computes elements [column, column + n) of a row of `width`.
#define WEFT_PACKS_OF_ROWS(rows, width)                           \
  WEFT_HD Index items() const { return (rows)*T::packs(width); }  \
  WEFT_HD void item(Index i) const {                              \
    const Index column = i % T::packs(width) * kN;                \
    pack(i / T::packs(width), column, least(kN, (width)-column)); \
  }

// ---- launching ------------------------------------------------------------------------------

template <class K>
concept HasTeams = requires(const K& k) {
  k.teams();
};

// Returns the number of teams or items of the kernel.
template <class K>
std::size_t size_of(const K& k) {
  if constexpr (HasTeams<K>)
    return k.teams();
  else
    return k.items();
}
// Runs teams or items [begin, end).
template <class K>
void run_on_host(const K& k, std::size_t begin, std::size_t end) {
  HostTeam team;
  for (std::size_t i = begin; i < end; ++i)
    if constexpr (HasTeams<K>)
      k.team(team, i);
    else
      k.item(i);
}

// Launches the kernel at `args` (cuda_launch.h).
template <class K>
int launch_on_gpu(const void* args, void* stream);
int load_on_gpu();  // loads all kernels except attention
int load_attention_on_gpu();
// The title of the work that loads all kernels.
inline constexpr const char* kAllKernels = "of the trainer";

// Returns the work of a kernel. `kernel` must outlive the returned work; launching copies `kernel`.
template <class K>
DeviceWork work_of(const K& kernel) {
  DeviceWork work;
#ifdef WEFT_HAVE_CUDA
  work.launch = &launch_on_gpu<K>;
#endif
  work.run = [](const void* args, void* (*local)(const void*)) {
    K k = *static_cast<const K*>(args);
    k.pointers([local]<class P>(P*& p) { p = static_cast<P*>(local(p)); });
    run_on_host(k, 0, size_of(k));
  };
  work.args = &kernel;
  work.bytes = sizeof kernel;
  work.title = K::kTitle;
  work.loaded_with = kAllKernels;
  return work;
}

}  // namespace weft::train::kernels
