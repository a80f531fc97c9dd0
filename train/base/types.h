// Element types that include the memory space of the numbers. A model of `float` computes on the
// CPU, a model of OnDevice<Bf16> on a GPU. Both use the same layers; overload resolution selects
// the operators (operators/operators.h). The host never reads an OnDevice element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "coll/types.h"

namespace weft::train {

// An element: its type in device memory, the type in which kernels compute, and its DType.
struct Fp64 {
  using Stored = double;
  using Value = double;
  static constexpr DType kType = DType::kFloat64;
};
struct Fp32 {
  using Stored = float;
  using Value = float;
  static constexpr DType kType = DType::kFloat32;
};
struct Bf16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr DType kType = DType::kBFloat16;
};
struct Fp16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr DType kType = DType::kFloat16;
};

template <class E>
struct OnDevice {
  using Element = E;
  typename E::Stored stored;
};

// A 16-bit element in host memory (Bf16, Fp16): operators compute in fp32 and round their results.
template <class E>
struct OnProcessor {
  using Element = E;
  typename E::Stored stored;
};

// The element for numbers that need more than 16 bits: statistics, losses, master weights, moments.
template <class V>
struct WideOnDevice {
  V stored;
};

template <class T>
struct Placement {  // elements in host memory
  static constexpr bool kOnDevice = false;
  static constexpr DType kType = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;
  using Wide = T;  // element of statistics and optimizer state
  using Host = T;  // element of files, text samples and tests
};
template <class E>
struct Placement<OnProcessor<E>> {
  static constexpr bool kOnDevice = false;
  static constexpr DType kType = E::kType;
  using Wide = float;
  using Host = float;
};
template <class E>
struct Placement<OnDevice<E>> {
  static constexpr bool kOnDevice = true;
  static constexpr DType kType = E::kType;
  using Wide = WideOnDevice<typename E::Value>;
  using Host = typename E::Value;
};
template <class V>
struct Placement<WideOnDevice<V>> {
  static constexpr bool kOnDevice = true;
  static constexpr DType kType = sizeof(V) == 8 ? DType::kFloat64 : DType::kFloat32;
  using Wide = WideOnDevice<V>;
  using Host = V;
};

template <class T>
inline constexpr bool kOnDevice = Placement<T>::kOnDevice;
template <class T>
inline constexpr DType kDType = Placement<T>::kType;
template <class T>
using Wide = typename Placement<T>::Wide;
template <class T>
using HostOf = typename Placement<T>::Host;
// V in the same memory space as T.
template <class T, class V>
using Beside = std::conditional_t<kOnDevice<T>, WideOnDevice<V>, V>;
template <class T>
using LossSum = Beside<T, double>;
// Whether weights are rounded copies of master weights in the optimizer's state.
template <class T>
inline constexpr bool kHasMaster = sizeof(T) < sizeof(Wide<T>);

// Returns the number of elements T with the size of `count` elements Wide<T>.
template <class T>
constexpr std::size_t wide_room(std::size_t count) {
  return count * (sizeof(Wide<T>) / sizeof(T));
}
// Returns this memory as Wide<T>.
template <class T>
Wide<T>* as_wide(T* room) {
  return reinterpret_cast<Wide<T>*>(room);
}
template <class T>
const Wide<T>* as_wide(const T* room) {
  return reinterpret_cast<const Wide<T>*>(room);
}

// Calls X(T) for each T of models: on a device, and on CPU and device.
#define WEFT_DEVICE_TYPES(X) X(OnDevice<Fp64>) X(OnDevice<Fp32>) X(OnDevice<Bf16>) X(OnDevice<Fp16>)
#define WEFT_TYPES(X) \
  X(float) X(double) X(OnProcessor<Bf16>) X(OnProcessor<Fp16>) WEFT_DEVICE_TYPES(X)
// Instantiates a class template for all T of WEFT_TYPES.
#define WEFT_INSTANTIATE(Class)            \
  template class Class<float>;             \
  template class Class<double>;            \
  template class Class<OnProcessor<Bf16>>; \
  template class Class<OnProcessor<Fp16>>; \
  template class Class<OnDevice<Fp64>>;    \
  template class Class<OnDevice<Fp32>>;    \
  template class Class<OnDevice<Bf16>>;    \
  template class Class<OnDevice<Fp16>>

}  // namespace weft::train
