// SquareSum and ExactSquares on a device. This file does not know the parts of other ranks.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "train/device/launch.h"
#include "train/device/operators.h"

namespace weft::train {

template <class E>
SquareSum<OnDevice<E>>::SquareSum()
    : total_(1, Use::kWorkspace), parts_(kernels::kParts, Use::kWorkspace) {
  total_.fill_zero();
}
template <class E>
void SquareSum<OnDevice<E>>::add(const OnDevice<E>* x, Index count) {
  launch(kernels::SquareParts<E>{raw(parts_.data()), raw(x), count});
  launch(kernels::AddParts<E>{raw(total_.data()), raw(parts_.data())});
}
template <class E>
double SquareSum<OnDevice<E>>::value() {
  double sum = 0;
  download(&sum, total_.data(), sizeof sum);
  return sum;
}

template <class E>
ExactSquares<OnDevice<E>>::ExactSquares()
    : most_(kernels::kParts, Use::kWorkspace), sums_(2 * kernels::kParts, Use::kWorkspace) {
  most_.fill_zero();
  sums_.fill_zero();
}
template <class E>
void ExactSquares<OnDevice<E>>::see(const OnDevice<E>* x, Index count) {
  launch(kernels::LargestParts<E>{raw(most_.data()), raw(x), count});
}
template <class E>
void ExactSquares<OnDevice<E>>::add(const OnDevice<E>* x, Index count, int shift) {
  launch(kernels::ExactSquareParts<E>{reinterpret_cast<std::int64_t*>(sums_.data()), raw(x), count,
                                      shift});
}
template <class E>
double ExactSquares<OnDevice<E>>::largest() {
  std::vector<double> parts(kernels::kParts);
  download(parts.data(), most_.data(), most_.bytes());
  return *std::max_element(parts.begin(), parts.end());
}
template <class E>
ExactSum ExactSquares<OnDevice<E>>::sum() {
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
