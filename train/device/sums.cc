// SquareSum and ExactSquares on a device. This file does not know the parts of other ranks.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "train/device/launch.h"
#include "train/device/operators.h"

namespace weft::train {

template <DeviceElement T>
SquareSum<T>::SquareSum() : total_(1, Use::kWorkspace), parts_(kernels::kParts, Use::kWorkspace) {
  total_.fill_zero();
}
template <DeviceElement T>
void SquareSum<T>::add(const T* x, Index count) {
  launch(kernels::SquareParts<ElementOf<T>>{raw(parts_.data()), raw(x), count});
  launch(kernels::AddParts<ElementOf<T>>{raw(total_.data()), raw(parts_.data())});
}
template <DeviceElement T>
double SquareSum<T>::value() {
  double sum = 0;
  download(&sum, total_.data(), sizeof sum);
  return sum;
}

template <DeviceElement T>
ExactSquares<T>::ExactSquares()
    : most_(kernels::kParts, Use::kWorkspace), sums_(2 * kernels::kParts, Use::kWorkspace) {
  most_.fill_zero();
  sums_.fill_zero();
}
template <DeviceElement T>
void ExactSquares<T>::see(const T* x, Index count) {
  launch(kernels::LargestParts<ElementOf<T>>{raw(most_.data()), raw(x), count});
}
template <DeviceElement T>
void ExactSquares<T>::add(const T* x, Index count, int shift) {
  launch(kernels::ExactSquareParts<ElementOf<T>>{reinterpret_cast<std::int64_t*>(sums_.data()),
                                                 raw(x), count, shift});
}
template <DeviceElement T>
double ExactSquares<T>::largest() {
  std::vector<double> parts(kernels::kParts);
  download(parts.data(), most_.data(), most_.bytes());
  return *std::max_element(parts.begin(), parts.end());
}
template <DeviceElement T>
ExactSum ExactSquares<T>::sum() {
  std::vector<std::int64_t> parts(2 * kernels::kParts);
  download(parts.data(), sums_.data(), sums_.bytes());
  const auto half = parts.begin() + kernels::kParts;
  return {std::accumulate(parts.begin(), half, std::int64_t{0}),
          std::accumulate(half, parts.end(), std::int64_t{0})};
}

#define WEFT_SUMS(T)           \
  template class SquareSum<T>; \
  template class ExactSquares<T>;
WEFT_DEVICE_TYPES(WEFT_SUMS)

}  // namespace weft::train
