// Memory where the elements of a type are (device/types.h), and what moves between the two places.
// On the processor all of it is what the standard library has.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

#include "train/device/types.h"

namespace weft::train {

// Untyped calls to this rank's device (device/context.h).
void* allocate_on_device(std::size_t bytes);
void free_on_device(void* memory) noexcept;
void copy_on_device(void* to, const void* from, std::size_t bytes);
void zero_on_device(void* to, std::size_t bytes);
void download(void* to, const void* from, std::size_t bytes);  // waits
void upload(void* to, const void* from, std::size_t bytes);    // has read when it returns
void* pinned_memory(std::size_t bytes);  // of the host; copies from and to it need no detour
void free_pinned(void* memory) noexcept;
void wait_for_device();
// Streams for weft's calls: what is put on the first is in the order of the operators, what is put
// on the second starts after the operators so far and runs beside those that follow.
void* compute_stream();
void* stream_beside_compute();

// Throws Error that says how much memory it was, and what takes less.
[[noreturn]] void out_of_memory(std::size_t count, std::size_t bytes_of_each);

template <class T>
T* allocate(std::size_t count) {
  if constexpr (kOnDevice<T>)
    return static_cast<T*>(allocate_on_device(count * sizeof(T)));
  else
    try {
      return new T[count];
    } catch (const std::bad_alloc&) {
      out_of_memory(count, sizeof(T));
    }
}
template <class T>
struct Free {
  void operator()(T* memory) const noexcept {
    if constexpr (kOnDevice<T>)
      free_on_device(memory);
    else
      delete[] memory;
  }
};

template <class T>
void copy(T* to, const T* from, std::size_t count) {
  if constexpr (kOnDevice<T>)
    copy_on_device(to, from, count * sizeof(T));
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

// 16-bit numbers, by their type.
void download_widened(float* to, const void* from, std::size_t count, DType type);
void upload_narrowed(void* to, const float* from, std::size_t count, DType type);

// To and from numbers of the host; from_host() rounds where T has fewer digits.
template <class T>
void to_host(HostOf<T>* to, const T* from, std::size_t count) {
  if constexpr (!kOnDevice<T>)
    std::memcpy(to, from, count * sizeof(T));
  else if constexpr (sizeof(T) == sizeof(HostOf<T>))
    download(to, from, count * sizeof(T));
  else
    download_widened(to, from, count, kDType<T>);
}
template <class T>
void from_host(T* to, const HostOf<T>* from, std::size_t count) {
  if constexpr (!kOnDevice<T>)
    std::memcpy(to, from, count * sizeof(T));
  else if constexpr (sizeof(T) == sizeof(HostOf<T>))
    upload(to, from, count * sizeof(T));
  else
    upload_narrowed(to, from, count, kDType<T>);
}

}  // namespace weft::train
