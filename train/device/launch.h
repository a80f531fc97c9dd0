// Launches kernels of device/kernels.h on elements of base/types.h, for device operators.
#pragma once

#include <cstddef>
#include <type_traits>

#include "train/base/threads.h"
#include "train/device/context.h"
#include "train/device/kernels.h"

namespace weft::train {

// Converts a T* to the pointer to stored numbers that kernels use.
template <class T>
auto raw(T* p) {
  if constexpr (!requires { p->stored; })
    return p;
  else if constexpr (std::is_const_v<T>)
    return reinterpret_cast<const decltype(p->stored)*>(p);
  else
    return reinterpret_cast<decltype(p->stored)*>(p);
}
template <class T>
struct ElementOfType {
  using Type = typename T::Element;
};
template <class V>
struct ElementOfType<WideOnDevice<V>> {
  using Type = std::conditional_t<sizeof(V) == 8, Fp64, Fp32>;
};
template <class T>
using ElementOf = typename ElementOfType<T>::Type;
template <class T>
using ValueOf = HostOf<T>;

// Runs a kernel on elements T: on this rank's device, or on its threads.
template <class T, class K>
void launch(const K& kernel) {
  constexpr std::size_t kPiece = 64;
  if (kernels::size_of(kernel) == 0) return;
  if constexpr (kOnDevice<T>)
    DeviceContext::of_this_rank().launch(kernels::work_of(kernel));
  else
    in_ranges(kernels::size_of(kernel), kPiece, [&](std::size_t begin, std::size_t end) {
      kernels::run_on_host(kernel, begin, end);
    });
}

// Runs the kernel K for elements T with these arguments; pointers to elements are converted to
// pointers to stored numbers.
template <template <class> class K, class T, class... Args>
void launch_of(Args... args) {
  const auto stored = [](auto arg) {
    if constexpr (requires { arg->stored; })
      return arg == nullptr ? nullptr : raw(arg);
    else
      return arg;
  };
  launch<T>(K<ElementOf<T>>{stored(args)...});
}

}  // namespace weft::train
