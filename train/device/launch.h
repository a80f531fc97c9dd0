// Launches kernels of device/kernels.h on elements of base/types.h, for the sources of the
// device's operators.
#pragma once

#include <cstddef>
#include <type_traits>

#include "train/device/context.h"
#include "train/device/kernels.h"

namespace weft::train {

// Returns the pointer to stored numbers that kernels take for a T*.
template <class T>
auto raw(T* p) {
  using S = decltype(p->stored);
  if constexpr (std::is_const_v<T>)
    return reinterpret_cast<const S*>(p);
  else
    return reinterpret_cast<S*>(p);
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

template <class K>
void launch(const K& kernel) {
  std::size_t work = 0;
  if constexpr (kernels::HasTeams<K>)
    work = kernel.teams();
  else
    work = kernel.items();
  if (work > 0) DeviceContext::of_this_rank().launch(kernels::work_of(kernel));
}

// Launches the kernel K of the elements T on these arguments; pointers to elements become pointers
// to their stored numbers.
template <template <class> class K, class T, class... Args>
void launch_of(Args... args) {
  const auto stored = [](auto arg) {
    if constexpr (requires { arg->stored; })
      return arg == nullptr ? nullptr : raw(arg);
    else
      return arg;
  };
  launch(K<ElementOf<T>>{stored(args)...});
}

}  // namespace weft::train
