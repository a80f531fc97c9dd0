// Sends gradient buckets and waits for them. Does not depend on the layers.
#include <algorithm>

#include "train/operators/operators.h"
#include "train/parallel/data_parallel.h"

namespace weft::train {

template <class T>
void DataParallel<T>::gradients_done(int unit) {
  poll();
  const int done = ++done_[static_cast<std::size_t>(unit)];
  add_to_sums(unit);
  if (leaves(unit, done)) send_unit(unit);
}

template <class T>
void DataParallel<T>::widen_and_add(Sum* sums, T* gradients, std::size_t count) {
  if constexpr (kHasMaster<T>) {
    constexpr std::size_t kPiece = 1u << 20;
    Tensor<Sum> piece(std::min(count, kPiece), Use::kWorkspace);
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
      const std::size_t n = std::min(kPiece, count - begin);
      widen(as_wide(piece.data()), gradients + begin, n);
      add(sums + begin, piece.data(), n);
    }
  }
}

template <class T>
void DataParallel<T>::add_to_sums(int unit) {
  if (!separate_sums_) return;
  const Unit& u = unit_at(unit);
  widen_and_add(sums_.data() + u.begin, gradients_.data() + u.begin, u.end - u.begin);
  set_zero(gradients_.data() + u.begin, u.end - u.begin);
}

template <class T>
template <class G>
void DataParallel<T>::sum_partial(int unit, G* gradients) {
  if (!options_.sequence_parallel) return;
  const Unit& u = unit_at(unit);
  for (std::size_t i = u.first; i < u.last; ++i) {
    const Parameter<T>& p = stage_.parameters()[i];
    if (p.logical.shard.of == 1)
      mesh_.tensor.all_reduce(gradients + (p.offset - u.begin), p.logical.count());
  }
}

template <class T>
void DataParallel<T>::send_unit(int unit) {
  sum_partial(unit, sums_of(unit));
  for (const Bucket& bucket : buckets_) {
    if (bucket.unit != unit) continue;
    if (in_flight_.empty() && mesh_.data.size() > 1) since_ = now_s();
    BucketInFlight b{&bucket};
    take(b);
    if (mesh_.data.size() > 1) begin(b);
    in_flight_.push_back(std::move(b));
    poll();
  }
}

template <class T>
void DataParallel<T>::begin(BucketInFlight& b) {
  const std::size_t first = b.bucket->begin, n = b.bucket->count();
  Communicator replicas = mesh_.replica.beside<T>();
  if (!residual_.empty())
    replicas = replicas.compressed({options_.codec, residual_.data() + first});
  b.handle = replicas.all_reduce_async(b.data, b.data, n, kDType<Sum>, RedOp::kSum);
}

// Returns true when the bucket's sum is complete; with `wait`, blocks until it is.
template <class T>
bool DataParallel<T>::advance(BucketInFlight& b, bool wait) {
  if (mesh_.data.size() == 1) return true;
  do {
    if (!wait && !b.handle.test()) return false;
    require(b.handle.wait());
  } while (second_half(b));
  return true;
}

template <class T>
void DataParallel<T>::pop_front() {
  adding_ = true;
  arrived(in_flight_.front());
  adding_ = false;
  in_flight_.pop_front();
  if (in_flight_.empty() && mesh_.data.size() > 1) total_ += now_s() - since_;
}

template <class T>
void DataParallel<T>::take_front() {
  advance(in_flight_.front(), true);
  pop_front();
}

// Buckets advance in send order: second halves must not overtake each other.
template <class T>
void DataParallel<T>::poll() {
  if (adding_) return;  // called by arrived(), which is adding the first bucket
  while (!in_flight_.empty() && advance(in_flight_.front(), false)) pop_front();
}

// Adds the gradients of a tied embedding's two copies, in the first and in the last stage: this
// rank's part, which is the same in both stages. The sum over stages follows the sum over replicas:
// a sum of two numbers has the same bits in either order.
template <class T>
void DataParallel<T>::sum_tied_gradients() {
  if (stage_.shared_unit() < 0) return;
  const Parameter<T>& tied = stage_.parameters()[unit_at(stage_.shared_unit()).first];
  if (shards() == 1)  // the whole tensor
    return mesh_.ends.all_reduce(sums() + tied.offset, tied.logical.count());
  each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
    if (p.offset == tied.offset)
      mesh_.ends.all_reduce(sums() + gradient_at(stored, p.offset + first), n);
  });
}

template <class T>
void DataParallel<T>::finish() {
  double start = now_s() - mesh_.tensor.seconds();  // sum_partial() counts its own waits
  for (int u = static_cast<int>(done_.size()) - 1; u >= 0; --u)
    if (sent_last(u)) send_unit(u);
  std::fill(done_.begin(), done_.end(), 0);
  start += mesh_.tensor.seconds();
  if (kOnDevice<T> && mesh_.data.size() > 1) {
    rank_device().wait();  // waits for the compute until here
    start = now_s();
  }
  while (!in_flight_.empty()) take_front();
  if (mesh_.data.size() > 1) exposed_ += now_s() - start;
  sum_tied_gradients();  // the axis counts the time
}

// Explicit instantiation of members defined here, and of members that modes call.
#define WEFT_BUCKETS(T)                                                \
  template void DataParallel<T>::gradients_done(int);                  \
  template void DataParallel<T>::widen_and_add(Sum*, T*, std::size_t); \
  template void DataParallel<T>::add_to_sums(int);                     \
  template void DataParallel<T>::sum_partial(int, T*);                 \
  template void DataParallel<T>::send_unit(int);                       \
  template void DataParallel<T>::begin(BucketInFlight&);               \
  template void DataParallel<T>::take_front();                         \
  template void DataParallel<T>::poll();                               \
  template void DataParallel<T>::finish();
WEFT_TYPES(WEFT_BUCKETS)

}  // namespace weft::train
