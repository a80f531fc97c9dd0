// Sends gradient buckets, and fetches the weights of ZeRO 3. This file does not know the layers.
#include <algorithm>

#include "train/operators/operators.h"
#include "train/parallel/data_parallel.h"

namespace weft::train {

// Of ZeRO 3: all weights of a unit, on their way before they are needed.
template <class T>
void DataParallel<T>::fetch(int unit) {
  UnitState& s = state_[static_cast<std::size_t>(unit)];
  const Unit& u = stage_.units()[static_cast<std::size_t>(unit)];
  const std::size_t n = part(u.end - u.begin);
  s.weights = Tensor<T>(u.end - u.begin, Use::kWeights);
  T* mine = s.weights.data() + static_cast<std::size_t>(mesh_.shard.rank()) * n;
  copy(mine, weights_.data() + part(u.begin), n);
  if (mesh_.shard.size() == 1) return;
  s.since = now_s();
  s.arrived = 0;
  s.fetch.emplace(mesh_.shard.beside<T>().all_gather_async(mine, s.weights.data(), n, kDType<T>));
  if constexpr (kOnDevice<T>) s.fetched = rank_device().mark(rank_device().communication());
}

template <class T>
void DataParallel<T>::expect_weights(int unit) {
  UnitState& s = state_[static_cast<std::size_t>(unit)];
  if (options_.zero == 3 && options_.overlap && s.weights.empty()) fetch(unit);
}

template <class T>
void DataParallel<T>::want_weights(int unit) {
  poll();
  UnitState& s = state_[static_cast<std::size_t>(unit)];
  if (options_.zero < 3 || s.wanted++ > 0) return;
  if (s.weights.empty()) fetch(unit);
  if (kOnDevice<T> && s.fetch) {
    s.fetched.before(rank_device().compute());
    fetches_.emplace_back(std::move(*s.fetch), s.since);
    s.fetch.reset();
  } else if (s.fetch) {
    const double start = now_s();
    require(s.fetch->wait());
    const double end = now_s();
    exposed_ += end - start;
    total_ += (s.arrived > 0 ? s.arrived : end) - s.since;
    s.fetch.reset();
  }
  stage_.bind(unit, s.weights.data(), nullptr);
}

template <class T>
void DataParallel<T>::release_weights(int unit) {
  UnitState& s = state_[static_cast<std::size_t>(unit)];
  if (options_.zero == 3 && --s.wanted == 0) s.weights = {};
}

template <class T>
void DataParallel<T>::want_gradients(int unit) {
  UnitState& s = state_[static_cast<std::size_t>(unit)];
  if (options_.zero < 2 || !s.gradients.empty()) return;
  const Unit& u = stage_.units()[static_cast<std::size_t>(unit)];
  s.gradients = Tensor<T>::zeros(u.end - u.begin, Use::kGradients);
  stage_.bind(unit, nullptr, s.gradients.data());
}

template <class T>
void DataParallel<T>::gradients_done(int unit) {
  poll();
  UnitState& s = state_[static_cast<std::size_t>(unit)];
  ++s.done;
  if (reduces_in_order()) {
    if (unit == 0) reduce_in_order();
    return;
  }
  if (apart_) add_to_sums(unit);
  if (unit == stage_.shared_unit() || sends_last()) return;  // finish() sends the unit
  if (options_.zero >= 2 || s.done == options_.micro_batches) send_unit(unit);
}

// The same sum for every number of replicas: micro-batches are dealt out in turn, so that replica
// r has number r, r + n, r + 2n, ...; each round adds the gradients of n more micro-batches to the
// sum, in the order of ranks. Replica 0 adds the sum so far to its gradients before the all-reduce,
// which adds in the order of ranks. With split gradients, send_bucket() sends every rank's blocks
// to the rank that keeps the sum.
template <class T>
void DataParallel<T>::reduce_in_order() {
  for (int u = static_cast<int>(state_.size()) - 1; u >= 0; --u) {
    const std::size_t begin = stage_.units()[static_cast<std::size_t>(u)].begin;
    sum_partial(u, reinterpret_cast<char*>(gradients_.data() + begin), begin);
  }
  Tensor<Sum> widened;
  Sum* all;
  if constexpr (kHasMaster<T>) {
    widened = Tensor<Sum>(gradients_.count(), Use::kWorkspace);
    all = widened.data();
    widen(as_wide(all), gradients_.data(), gradients_.count());
  } else {
    all = gradients_.data();
  }
  if (mesh_.data.rank() == 0) add(all, sums_.data(), sums_.count());
  if (options_.server)
    mesh_.data.run([&] {
      return mesh_.data.in_order<T>().reduce(all, all, sums_.count(), kDType<Sum>, RedOp::kSum,
                                             kServer);
    });
  else
    mesh_.data.all_reduce(all, sums_.count());
  copy(sums_.data(), all, sums_.count());
  gradients_.fill_zero();
}

// sums or gradients += from, at the place `stored` of this rank's part.
template <class T>
void DataParallel<T>::add_part(std::size_t stored, const char* from, std::size_t n) {
  if (apart_)
    add(sums_.data() + stored, reinterpret_cast<const Sum*>(from), n);
  else
    add(gradients_.data() + stored, reinterpret_cast<const T*>(from), n);
}

// Adds the gradients that a micro-batch has left in a unit to the sums, piece by piece, and forgets
// them.
template <class T>
void DataParallel<T>::add_to_sums(int unit) {
  if constexpr (kHasMaster<T>) {
    constexpr std::size_t kPiece = 1u << 20;
    const Unit& u = stage_.units()[static_cast<std::size_t>(unit)];
    UnitState& s = state_[static_cast<std::size_t>(unit)];
    const std::size_t count = u.end - u.begin;
    const bool split = options_.zero >= 2;
    if (split && s.sum.empty()) s.sum = Tensor<Sum>::zeros(count, Use::kGradients);
    T* from = split ? s.gradients.data() : gradients_.data() + u.begin;
    Sum* to = split ? s.sum.data() : sums_.data() + u.begin;
    Tensor<Sum> piece(std::min(count, kPiece), Use::kWorkspace);
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
      const std::size_t n = std::min(kPiece, count - begin);
      widen(as_wide(piece.data()), from + begin, n);
      add(to + begin, piece.data(), n);
    }
    if (split)
      s.gradients = {};
    else
      set_zero(from, count);
  }
}

// Sums gradients of unsharded parameters over tensor ranks: with sequence parallelism each rank saw
// its rows only. gradients: of the flat buffer from `begin` on.
template <class T>
void DataParallel<T>::sum_partial(int unit, char* gradients, std::size_t begin) {
  if (!options_.sequence_parallel) return;
  const bool of_sums = !reduces_in_order();
  const Unit& u = stage_.units()[static_cast<std::size_t>(unit)];
  for (std::size_t i = u.first; i < u.last; ++i) {
    const Parameter<T>& p = stage_.parameters()[i];
    if (p.logical.shard.of != 1) continue;
    if (of_sums)
      all_reduce(mesh_.tensor, gradients + (p.offset - begin) * bytes_each_, p.logical.count());
    else
      mesh_.tensor.all_reduce(reinterpret_cast<T*>(gradients) + (p.offset - begin),
                              p.logical.count());
  }
}

template <class T>
void DataParallel<T>::send_unit(int unit) {
  const std::size_t begin = stage_.units()[static_cast<std::size_t>(unit)].begin;
  UnitState& s = state_[static_cast<std::size_t>(unit)];
  sum_partial(unit,
              options_.zero < 2 ? sums() + begin * bytes_each_
              : apart_          ? reinterpret_cast<char*>(s.sum.data())
                                : reinterpret_cast<char*>(s.gradients.data()),
              begin);
  for (const Bucket& b : buckets_)
    if (b.unit == unit) send_bucket(b);
}

template <class T>
void DataParallel<T>::send_bucket(const Bucket& bucket) {
  if (in_flight_.empty() && mesh_.data.size() > 1) since_ = now_s();
  BucketInFlight t{.bucket = &bucket,
                   .data = nullptr,
                   .own = {},
                   .own_sum = {},
                   .blocks = {},
                   .handle = {},
                   .scatter = {},
                   .scattered = mesh_.shard.size() == 1};
  if (options_.zero >= 2) {
    UnitState& s = state_[static_cast<std::size_t>(bucket.unit)];
    t.own = std::move(s.gradients);
    t.own_sum = std::move(s.sum);
    t.data =
        apart_ ? reinterpret_cast<char*>(t.own_sum.data()) : reinterpret_cast<char*>(t.own.data());
  } else {
    t.data = sums() + bucket.begin * bytes_each_;
  }
  const std::size_t n = part(bucket.count());
  const auto shard = [&] { return mesh_.shard.beside<T>(); };
  if (mesh_.shard.size() > 1 && options_.deterministic) {
    t.blocks = Tensor<Sum>(bucket.count(), Use::kRemoteGradients);
    t.handle = shard().all_to_all_async(t.data, t.blocks.data(), n, type_);
  } else if (mesh_.shard.size() > 1) {
    t.handle = shard().reduce_scatter_async(
        t.data, t.data + static_cast<std::size_t>(mesh_.shard.rank()) * n * bytes_each_, n, type_,
        RedOp::kSum);
  } else if (options_.server && mesh_.data.size() > 1) {
    t.handle = mesh_.data.beside<T>().reduce_async(t.data, t.data, bucket.count(), type_,
                                                   RedOp::kSum, kServer);
  } else if (mesh_.replica.size() > 1) {
    Communicator replicas = mesh_.replica.beside<T>();
    if (!residual_.empty())
      replicas = replicas.compressed({options_.codec, residual_.data() + bucket.begin});
    t.handle = replicas.all_reduce_async(t.data, t.data, bucket.count(), type_, RedOp::kSum);
  }
  // A stream takes its calls in turn, so they must come in the same order on every rank: not when
  // a rank happens to see that the first half is over.
  if (kOnDevice<T> && !t.scattered && mesh_.replica.size() > 1) {
    t.scatter = std::move(t.handle);
    join_replicas(t);
  }
  in_flight_.push_back(std::move(t));
  poll();
  if (options_.zero < 2 || kOnDevice<T>) return;
  // The gradients of a unit wait in memory of their own: of one unit, while the next one computes.
  const double start = now_s();
  while (in_flight_.size() > 1) {
    advance(in_flight_.front(), true);
    arrived(in_flight_.front());
    in_flight_.pop_front();
  }
  exposed_ += now_s() - start;
}

// The second half: every rank of the shard has the sum of its part; the replicas add these up.
template <class T>
void DataParallel<T>::join_replicas(BucketInFlight& t) {
  t.scattered = true;
  const std::size_t n = part(t.bucket->count());
  char* own = t.data + static_cast<std::size_t>(mesh_.shard.rank()) * n * bytes_each_;
  t.handle = between_groups_.beside<T>().all_reduce_async(own, own, n, type_, RedOp::kSum);
}

// Returns true when the bucket's last half is over; with `wait` it always does.
template <class T>
bool DataParallel<T>::advance(BucketInFlight& t, bool wait) {
  if (mesh_.data.size() == 1) return true;
  for (;;) {
    if (!wait && !t.handle.test()) return false;
    require(t.handle.wait());
    if (t.scattered || mesh_.replica.size() == 1) return true;
    join_replicas(t);
  }
}

template <class T>
void DataParallel<T>::arrived(BucketInFlight& t) {
  if (options_.zero < 2) return;  // in place
  const std::size_t n = part(t.bucket->count());
  const std::size_t stored = part(t.bucket->begin);
  adding_ = true;
  for (std::size_t r = 0; r < t.blocks.count() / std::max<std::size_t>(n, 1); ++r)
    add_part(stored, reinterpret_cast<const char*>(t.blocks.data() + r * n), n);
  if (t.blocks.empty())
    add_part(stored, t.data + static_cast<std::size_t>(mesh_.shard.rank()) * n * bytes_each_, n);
  adding_ = false;
}

// Buckets advance in the order of their sends: second halves must not overtake each other.
template <class T>
void DataParallel<T>::poll() {
  if (adding_) return;  // called while arrived() adds up the first bucket
  for (UnitState& s : state_)
    if (s.fetch && s.fetch->test() && s.arrived == 0) s.arrived = now_s();
  for (; !fetches_.empty() && fetches_.front().first.test(); fetches_.pop_front()) {
    require(fetches_.front().first.wait());
    total_ += now_s() - fetches_.front().second;
  }
  while (!in_flight_.empty() && advance(in_flight_.front(), false)) {
    arrived(in_flight_.front());
    in_flight_.pop_front();
    if (in_flight_.empty() && mesh_.data.size() > 1) total_ += now_s() - since_;
  }
}

// Adds the gradients of a tied embedding's two copies, in the first and in the last stage: this
// rank's part, which both stages cut alike. The sum over the stages comes last, after those over
// replicas: a sum of two numbers has the same bits in either order.
template <class T>
void DataParallel<T>::sum_tied_gradients() {
  if (stage_.shared_unit() < 0) return;
  const Unit& u = stage_.units()[static_cast<std::size_t>(stage_.shared_unit())];
  const Parameter<T>& tied = stage_.parameters()[u.first];
  if (mesh_.shard.size() == 1)  // the whole tensor
    return all_reduce(mesh_.ends, sums() + tied.offset * bytes_each_, tied.logical.count());
  each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
    if (p.offset == tied.offset)
      all_reduce(mesh_.ends, sums() + at(stored, p.offset + first) * bytes_each_, n);
  });
}

template <class T>
void DataParallel<T>::finish() {
  const int shared = stage_.shared_unit();
  double start = now_s() - mesh_.tensor.seconds();  // which waits for itself in sum_partial()
  for (int u = static_cast<int>(state_.size()) - 1; u >= 0; --u) {
    if (!reduces_in_order() && (u == shared || sends_last())) send_unit(u);
    state_[static_cast<std::size_t>(u)].done = 0;
  }
  start += mesh_.tensor.seconds();
  if (kOnDevice<T> && mesh_.data.size() > 1) {
    rank_device().wait();  // until here it computed
    start = now_s();
  }
  for (; !fetches_.empty(); fetches_.pop_front()) require(fetches_.front().first.wait());
  while (!in_flight_.empty()) {
    advance(in_flight_.front(), true);
    arrived(in_flight_.front());
    in_flight_.pop_front();
    if (in_flight_.empty() && mesh_.data.size() > 1) total_ += now_s() - since_;
  }
  if (mesh_.data.size() > 1) exposed_ += now_s() - start;
  sum_tied_gradients();  // the axis counts the time
}

// Members of a class that is instantiated in data_parallel.cc: those that are called from there.
#define WEFT_BUCKETS(T)                                \
  template void DataParallel<T>::expect_weights(int);  \
  template void DataParallel<T>::want_weights(int);    \
  template void DataParallel<T>::release_weights(int); \
  template void DataParallel<T>::want_gradients(int);  \
  template void DataParallel<T>::gradients_done(int);  \
  template void DataParallel<T>::poll();               \
  template void DataParallel<T>::finish();
WEFT_TYPES(WEFT_BUCKETS)

}  // namespace weft::train
