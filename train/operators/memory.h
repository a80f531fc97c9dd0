// Allocates, copies and clears memory for elements of a type, in host or device memory as the type
// says (device/types.h). For host memory these functions use the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "train/device/context.h"
#include "train/device/types.h"

namespace weft::train {

// This rank's device (device/context.h).
inline DeviceContext& rank_device() { return DeviceContext::of_this_rank(); }
void zero_on_device(void* to, std::size_t bytes);

// Throws Error that names the size and the flags that need less memory.
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

// Copies 16-bit device numbers of `type` to the host as floats.
void download_widened(float* to, const void* from, std::size_t count, DType type);
// Rounds floats of the host to 16-bit device numbers of `type`.
void upload_narrowed(void* to, const float* from, std::size_t count, DType type);

// Copies elements to numbers of the host.
template <class T>
void to_host(HostOf<T>* to, const T* from, std::size_t count) {
  if constexpr (!kOnDevice<T>)
    std::memcpy(to, from, count * sizeof(T));
  else if constexpr (sizeof(T) == sizeof(HostOf<T>))
    rank_device().download(to, from, count * sizeof(T));
  else
    download_widened(to, from, count, kDType<T>);
}
// Copies numbers of the host to elements; rounds where T has fewer digits.
template <class T>
void from_host(T* to, const HostOf<T>* from, std::size_t count) {
  if constexpr (!kOnDevice<T>)
    std::memcpy(to, from, count * sizeof(T));
  else if constexpr (sizeof(T) == sizeof(HostOf<T>))
    rank_device().upload(to, from, count * sizeof(T));
  else
    upload_narrowed(to, from, count, kDType<T>);
}

}  // namespace weft::train
