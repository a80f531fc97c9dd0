// Allocates, copies and clears memory for elements of a type, in host or device memory as the type
// says (device/types.h). For host memory these functions use the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "train/device/types.h"

namespace weft::train {

// Untyped calls to this rank's device (device/context.h).
void* allocate_on_device(std::size_t bytes);
void free_on_device(void* memory) noexcept;
void copy_on_device(void* to, const void* from, std::size_t bytes);
void zero_on_device(void* to, std::size_t bytes);
void download(void* to, const void* from, std::size_t bytes);  // waits for the compute stream
void upload(void* to, const void* from, std::size_t bytes);    // has read `from` on return
void* pinned_memory(std::size_t bytes);  // host memory; copies to the device need no staging
void free_pinned(void* memory) noexcept;
void wait_for_device();
// Takes pinned_memory(), which is in the pool again after the copy.
void upload_pinned(void* to, void* memory, std::size_t bytes);

// A point in the order of a stream's work. An empty mark is passed.
class DeviceMark {
 public:
  DeviceMark() = default;
  static DeviceMark of_compute();        // after the operators so far
  static DeviceMark of_communication();  // after the calls on the communication stream so far
  DeviceMark(DeviceMark&& o) noexcept : event_(std::exchange(o.event_, nullptr)) {}
  DeviceMark& operator=(DeviceMark&& o) noexcept {
    std::swap(event_, o.event_);
    return *this;
  }
  ~DeviceMark();
  bool passed() const;          // does not wait
  void before_compute() const;  // operators to come start after the mark; the host does not wait

 private:
  explicit DeviceMark(void* event) : event_(event) {}
  void* event_ = nullptr;
};
// The stream of the operators: calls on this stream run in the operators' order.
void* compute_stream();
// The communication stream: calls on this stream start after the operators so far and run beside
// later ones.
void* stream_beside_compute();

// Throws Error that names the size and the flags that need less memory.
[[noreturn]] void out_of_memory(std::size_t count, std::size_t bytes_of_each);

template <class T>
T* allocate(std::size_t count) {
  if constexpr (kOnDevice<T>) {
    return static_cast<T*>(allocate_on_device(count * sizeof(T)));
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
    download(to, from, count * sizeof(T));
  else
    download_widened(to, from, count, kDType<T>);
}
// Copies numbers of the host to elements; rounds where T has fewer digits.
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
