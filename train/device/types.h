// Element types that say where their numbers are. A model of `float` computes on the processor, a
// model of OnDevice<Bf16> on a GPU: the same layers, and overload resolution finds the operators
// (operators.h, device/operators.h). The host moves such elements and never looks at them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "coll/types.h"

namespace weft::train {

// What lies in device memory, what it is computed with, and what weft calls it.
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

// Statistics, losses, master weights and moments: what must not be rounded to 16 bits.
template <class V>
struct WideOnDevice {
  V stored;
};

template <class T>
struct Placement {  // on the processor
  static constexpr bool kOnDevice = false;
  static constexpr DType kType = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;
  using Wide = T;  // for statistics and state
  using Host = T;  // what the host sees: files, samples of text, tests
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
// Weights are rounded copies of master weights, which are part of the optimizer's state.
template <class T>
inline constexpr bool kHasMaster = sizeof(T) < sizeof(Wide<T>);

// Elements of T that make room for `count` of Wide<T>, and what is in that room.
template <class T>
constexpr std::size_t wide_room(std::size_t count) {
  return count * (sizeof(Wide<T>) / sizeof(T));
}
template <class T>
Wide<T>* as_wide(T* room) {
  return reinterpret_cast<Wide<T>*>(room);
}
template <class T>
const Wide<T>* as_wide(const T* room) {
  return reinterpret_cast<const Wide<T>*>(room);
}

// The types of a model on a device: X(element).
#define WEFT_DEVICE_ELEMENTS(X) X(Fp64) X(Fp32) X(Bf16) X(Fp16)

}  // namespace weft::train
