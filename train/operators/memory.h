// Allocates, copies and clears memory for elements of a type, in the host or device memory of the
// type (base/types.h). For host memory these functions use the standard library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "train/base/memory_ledger.h"
#include "train/base/types.h"
#include "train/device/context.h"
#include "train/device/kernel.h"

namespace weft::train {

// This rank's device (device/context.h).
inline DeviceContext& rank_device() { return DeviceContext::of_this_rank(); }
void zero_on_device(void* to, std::size_t bytes);

// Throws Error with the size and the flags that reduce memory.
[[noreturn]] void out_of_memory(std::size_t count, std::size_t bytes_of_each);

template <class T>
T* allocate(std::size_t count) {
  if constexpr (kOnDevice<T>) {
    return static_cast<T*>(rank_device().allocate(count * sizeof(T)));
  } else {
    const bool fits = count <= SIZE_MAX / sizeof(T);
    T* const memory = fits ? new (std::nothrow) T[count] : nullptr;
    if (memory == nullptr) out_of_memory(count, sizeof(T));
    return memory;
  }
}
template <class T>
struct Free {
  void operator()(T* memory) const noexcept {
    if constexpr (kOnDevice<T>)
      rank_device().release(memory);
    else
      delete[] memory;
  }
};

template <class T>
void copy(T* to, const T* from, std::size_t count) {
  MemoryLedger::of_this_rank().copied += count * sizeof(T);
  if constexpr (kOnDevice<T>)
    rank_device().copy(to, from, count * sizeof(T));
  else
    std::memcpy(to, from, count * sizeof(T));
}
template <class T>
void set_zero(T* to, std::size_t count) {
  if constexpr (kOnDevice<T>)
    zero_on_device(to, count * sizeof(T));
  else
    std::memset(to, 0, count * sizeof(T));
}

// Copies elements to host numbers. Blocks.
template <class T>
void to_host(HostOf<T>* to, const T* from, std::size_t count) {
  if constexpr (std::is_same_v<T, HostOf<T>>)
    std::memcpy(to, from, count * sizeof(T));
  else if constexpr (sizeof(T) == sizeof(HostOf<T>))
    rank_device().download(to, from, count * sizeof(T));
  else {
    std::vector<T> stored(count);
    if constexpr (kOnDevice<T>)
      rank_device().download(stored.data(), from, count * sizeof(T));
    else
      std::copy_n(from, count, stored.data());
    for (std::size_t i = 0; i < count; ++i)
      to[i] = kernels::Codec<typename T::Element>::widen(stored[i].stored);
  }
}
// Copies host numbers to elements, rounded if T has fewer bits.
template <class T>
void from_host(T* to, const HostOf<T>* from, std::size_t count) {
  if constexpr (std::is_same_v<T, HostOf<T>>)
    std::memcpy(to, from, count * sizeof(T));
  else if constexpr (sizeof(T) == sizeof(HostOf<T>))
    rank_device().upload(to, from, count * sizeof(T));
  else {
    std::vector<T> stored(count);
    for (std::size_t i = 0; i < count; ++i)
      stored[i].stored = kernels::Codec<typename T::Element>::narrow(from[i]);
    if constexpr (kOnDevice<T>)
      rank_device().upload(to, stored.data(), count * sizeof(T));
    else
      std::copy_n(stored.data(), count, to);
  }
}

}  // namespace weft::train
