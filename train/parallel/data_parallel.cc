// Memory, norm, update and checkpoint parts of a stage; gradient_buckets.cc sends gradients. Does
// not depend on the layers or on a mode's messages.
#include "train/parallel/data_parallel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "topo/base/random.h"
#include "train/operators/operators.h"

namespace weft::train {

template <class T>
DataParallel<T>::DataParallel(GptStage<T>& stage, Mesh& mesh, const DataParallelOptions& options,
                              const OptimizerOptions& optimizer)
    : stage_(stage),
      mesh_(mesh),
      options_(options),
      optimizer_(optimizer),
      whole_weights_(options.zero < 3),
      whole_gradients_(options.zero < 2),
      separate_sums_(kHasMaster<T> || (options.deterministic && options.zero < 2)),
      updates_(!options.server || mesh.data.rank() == 0),
      done_(stage.units().size()) {
  const std::size_t whole = stage.flat_count(), own = part(whole);
  make_buckets(std::max<std::size_t>(options.bucket_bytes / sizeof(Sum), 1));
  weights_ = Tensor<T>::zeros(whole_weights_ ? whole : own, Use::kWeights);
  if (whole_gradients_)
    gradients_ = Tensor<T>::zeros(whole, Use::kGradients);
  else if (!separate_sums_)
    gradients_ = Tensor<T>::zeros(own, Use::kRemoteGradients);
  if (options.codec != Codec::kNone) residual_.resize(whole);
  if (separate_sums_)
    sums_ = Tensor<Sum>::zeros(whole_gradients_ ? whole : own, Use::kRemoteGradients);
  if (updates_) state_ = OptimizerState<T>(own, optimizer, options.offload);
  for (int u = 0; u < static_cast<int>(stage.units().size()); ++u) {
    const std::size_t begin = unit_at(u).begin;
    stage.bind(u, whole_weights_ ? weights_.data() + begin : nullptr,
               whole_gradients_ ? gradients_.data() + begin : nullptr);
  }
  stage.set_store(this);
}

template <class T>
DataParallel<T>::~DataParallel() {
  stage_.set_store(nullptr);
}

// Buckets follow the backward pass, from the end of the flat buffer. The shared unit has separate
// buckets, so that the stage with the other copy has the same buckets.
template <class T>
void DataParallel<T>::make_buckets(std::size_t most) {
  most = std::max(most / shards() * shards(), shards());
  const auto& units = stage_.units();
  for (int u = static_cast<int>(units.size()) - 1; u >= 0; --u) {
    const Unit& unit = units[static_cast<std::size_t>(u)];
    if (!whole_gradients_) {
      buckets_.push_back({unit.begin, unit.end, u});
      continue;
    }
    const int shared = stage_.shared_unit();
    std::size_t end = unit.end;
    if (!buckets_.empty() && u != shared && buckets_.back().unit != shared) {
      // Extends the bucket of the previous units.
      Bucket& open = buckets_.back();
      const std::size_t more = std::min(most - std::min(open.count(), most), end - unit.begin);
      open.begin -= more;
      if (more > 0) open.unit = u;
      end -= more;
    }
    for (; end > unit.begin; end -= std::min(most, end - unit.begin))
      buckets_.push_back({end - std::min(most, end - unit.begin), end, u});
  }
}

template <class T>
void DataParallel<T>::fill(
    const std::function<HostOf<T>(const Parameter<T>&, std::size_t)>& value) {
  for (int u = 0; u < static_cast<int>(stage_.units().size()); ++u) {
    const Unit& unit = unit_at(u);
    Tensor<T> whole;
    if (!whole_weights_) {
      whole = Tensor<T>::zeros(unit.end - unit.begin, Use::kWorkspace);
      stage_.bind(u, whole.data(), nullptr);
    }
    for (std::size_t i = unit.first; i < unit.last; ++i) {
      Parameter<T>& p = stage_.parameters()[i];
      std::vector<HostOf<T>> values(p.logical.count());
      in_ranges(values.size(), 8192, [&](std::size_t begin, std::size_t end) {
        for (std::size_t k = begin; k < end; ++k) values[k] = value(p, k);
      });
      from_host(p.value, values.data(), values.size());
    }
    if (!whole_weights_) {
      const std::size_t n = part(whole.count());
      copy(weights_.data() + part(unit.begin),
           whole.data() + static_cast<std::size_t>(mesh_.shard.rank()) * n, n);
    }
  }
  set_master();
}

template <class T>
void DataParallel<T>::set_master() {
  if constexpr (kHasMaster<T>) {
    state_.bring_back();
    each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
      widen(state_.master.data() + stored, part_weights(stored, p.offset + first), n);
    });
    state_.send_away();
  }
}

namespace {

double unit_interval(std::uint64_t x) {  // (0, 1]
  return (static_cast<double>(x >> 11) + 1) / 9007199254740992.0;
}

}  // namespace

template <class T>
void DataParallel<T>::initialise(std::uint64_t seed) {
  fill([seed](const Parameter<T>& p, std::size_t k) {
    if (p.deviation == 0) return static_cast<HostOf<T>>(p.ones ? 1 : 0);
    std::uint64_t key = seed;
    for (const char c : p.logical.name) key = splitmix64(key ^ static_cast<unsigned char>(c));
    const std::uint64_t a = splitmix64(key + 2 * p.logical.logical_index(k)), b = splitmix64(a);
    return static_cast<HostOf<T>>(p.deviation * std::sqrt(-2 * std::log(unit_interval(a))) *
                                  std::cos(2 * std::numbers::pi * unit_interval(b)));
  });
}

template <class T>
void DataParallel<T>::each_piece(const std::function<void(const Parameter<T>&, std::size_t,
                                                          std::size_t, std::size_t)>& call) const {
  for (const Bucket& b : buckets_) {
    const std::size_t begin = mine(b), end = begin + part(b.count());
    for (const Parameter<T>& p : stage_.parameters()) {
      const std::size_t first = std::max(begin, p.offset);
      const std::size_t last = std::min(end, p.offset + p.logical.count());
      if (first < last) call(p, first - p.offset, last - first, part(b.begin) + (first - begin));
    }
  }
}

// Visits the gradients that count in the norm. Of several ranks with an element, one counts it.
template <class T>
template <class See>
void DataParallel<T>::each_gradient(See see) const {
  if (mesh_.replica.rank() != 0) return;
  each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
    if (p.tied_copy || (p.logical.shard.of == 1 && mesh_.tensor.rank() != 0)) return;
    see(summed().data() + gradient_at(stored, p.offset + first), n);
  });
}

template <class T>
double DataParallel<T>::squares() const {
  SquareSum<Sum> sum;
  each_gradient([&](const Sum* x, std::size_t n) { sum.add(x, n); });
  return sum.value();
}

template <class T>
double DataParallel<T>::largest() const {
  ExactSquares<Sum> squares;
  each_gradient([&](const Sum* x, std::size_t n) { squares.see(x, n); });
  return squares.largest();
}

template <class T>
void DataParallel<T>::add_squares(ExactSum& sum, int shift) const {
  ExactSquares<Sum> squares;
  each_gradient([&](const Sum* x, std::size_t n) { squares.add(x, n, shift); });
  const ExactSum mine = squares.sum();
  sum.high += mine.high;
  sum.low += mine.low;
}

template <class T>
void DataParallel<T>::update(int step, double rate, double scale) {
  state_.bring_back();
  if (updates_)
    each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
      T* w = part_weights(stored, p.offset + first);
      const Sum* g = sums() + gradient_at(stored, p.offset + first);
      const double decay = p.decays ? optimizer_.decay : 0;
      const auto place = [&](Tensor<Wide<T>>& state) {
        return state.empty() ? nullptr : state.data() + stored;
      };
      const Update how{optimizer_.adam,
                       {rate, optimizer_.beta1, optimizer_.beta2, optimizer_.epsilon, decay, step},
                       optimizer_.momentum,
                       scale};
      Wide<T>*const moment1 = place(state_.moment1), *const moment2 = place(state_.moment2);
      if constexpr (kHasMaster<T>) {  // updates fp32 masters, then rounds them to the weights
        Wide<T>* const master = place(state_.master);
        update_weights(reinterpret_cast<Sum*>(master), moment1, moment2, g, n, how);
        narrow(w, master, n);
      } else {
        update_weights(w, moment1, moment2, g, n, how);
      }
    });
  state_.send_away();
  timed_share();
  forget_gradients();
}

// Adds the time only if there are other ranks.
template <class T>
void DataParallel<T>::timed_share() {
  const double start = now_s();
  share_weights();
  const double took = shards() > 1 || options_.server ? now_s() - start : 0;
  exposed_ += took;
  total_ += took;
}

template <class T>
void DataParallel<T>::forget_gradients() {
  if (!gradients_.empty()) gradients_.fill_zero();
  if (!sums_.empty()) sums_.fill_zero();
}

template <class T>
std::vector<TensorPart<HostOf<T>>> DataParallel<T>::pieces() {
  state_.bring_back();  // stays in memory until the next update
  copies_.clear();
  std::vector<TensorPart<HostOf<T>>> all;
  each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
    const auto piece = [&]<class X>(const char* suffix, X* data) {
      HostOf<T>* here = nullptr;
      if constexpr (!std::is_same_v<X, HostOf<T>>) {
        copies_.push_back(std::make_unique<Copy>());
        copies_.back()->host.resize(n);
        copies_.back()->put_back = [data, n](const HostOf<T>* from) { from_host(data, from, n); };
        here = copies_.back()->host.data();
        to_host(here, data, n);
      } else {
        here = data;
      }
      TensorPart<HostOf<T>> x{p.logical, first, n, here, p.tied_copy};
      x.logical.name += suffix;
      all.push_back(std::move(x));
    };
    if constexpr (kHasMaster<T>)
      piece("", state_.master.data() + stored);
    else
      piece("", part_weights(stored, p.offset + first));
    if (!state_.moment1.empty()) piece("/m", state_.moment1.data() + stored);
    if (!state_.moment2.empty()) piece("/v", state_.moment2.data() + stored);
  });
  return all;
}

template <class T>
void DataParallel<T>::restored() {
  for (const auto& copy : copies_) copy->put_back(copy->host.data());
  copies_.clear();
  if constexpr (kHasMaster<T>)
    each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
      narrow(part_weights(stored, p.offset + first), state_.master.data() + stored, n);
    });
  state_.send_away();
  timed_share();
}

template <class T>
void DataParallel<T>::visit(const std::function<void(const Parameter<T>&)>& see) {
  for (int u = 0; u < static_cast<int>(stage_.units().size()); ++u) {
    const Unit& unit = unit_at(u);
    want_weights(u);
    for (std::size_t i = unit.first; i < unit.last; ++i) see(stage_.parameters()[i]);
    release_weights(u);
  }
}

WEFT_INSTANTIATE(DataParallel);

}  // namespace weft::train
