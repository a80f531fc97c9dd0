// Memory, optimizer and tensor parts of a stage; gradient_buckets.cc sends gradients. This file
// does not know the layers.
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
      between_groups_(options.stages > 1 && mesh.shard.size() > 1 && mesh.replica.size() > 1
                          ? mesh.replica_again()
                          : mesh.replica),
      options_(options),
      optimizer_(optimizer),
      apart_(kHasMaster<T> || (options.deterministic && options.zero < 2)),
      type_(apart_ ? kDType<Sum> : kDType<T>),
      bytes_each_(apart_ ? sizeof(Sum) : sizeof(T)),
      state_(stage.units().size()) {
  const std::size_t whole = stage.flat_count(), own = part(whole);
  make_buckets(std::max<std::size_t>(options.bucket_bytes / bytes_each_, 1));
  weights_ = Tensor<T>::zeros(options.zero < 3 ? whole : own, Use::kWeights);
  if (options.zero < 2)
    gradients_ = Tensor<T>::zeros(whole, Use::kGradients);
  else if (!apart_)
    gradients_ = Tensor<T>::zeros(own, Use::kRemoteGradients);
  if (options.codec != Codec::kNone) residual_.resize(whole);
  if (apart_) sums_ = Tensor<Sum>::zeros(options.zero < 2 ? whole : own, Use::kRemoteGradients);
  if (updates() && (optimizer.adam || optimizer.momentum != 0))
    moment1_ = Tensor<Wide<T>>::zeros(own, Use::kFirstMoment);
  if (updates() && optimizer.adam) moment2_ = Tensor<Wide<T>>::zeros(own, Use::kSecondMoment);
  if (updates() && kHasMaster<T>) master_ = Tensor<Wide<T>>::zeros(own, Use::kMasterWeights);
  if (!options.offload.empty()) offload_ = std::make_unique<Offload<Wide<T>>>(options.offload);
  send_state_away();
  for (int u = 0; u < static_cast<int>(state_.size()); ++u) {
    const std::size_t begin = stage.units()[static_cast<std::size_t>(u)].begin;
    stage.bind(u, options.zero < 3 ? weights_.data() + begin : nullptr,
               options.zero < 2 ? gradients_.data() + begin : nullptr);
  }
  stage.set_store(this);
}

template <class T>
DataParallel<T>::~DataParallel() {
  stage_.set_store(nullptr);
}

// Buckets follow the backward pass, from the end of the flat buffer. The shared unit has buckets of
// its own, which the stage with the other copy cuts alike.
template <class T>
void DataParallel<T>::make_buckets(std::size_t most) {
  const auto s = static_cast<std::size_t>(mesh_.shard.size());
  most = std::max(most / s * s, s);
  const auto& units = stage_.units();
  for (int u = static_cast<int>(units.size()) - 1; u >= 0; --u) {
    const Unit& unit = units[static_cast<std::size_t>(u)];
    if (options_.zero >= 2) {
      buckets_.push_back({unit.begin, unit.end, u});
      continue;
    }
    const int shared = stage_.shared_unit();
    std::size_t end = unit.end;
    if (!buckets_.empty() && u != shared && buckets_.back().unit != shared) {
      // Fills up the bucket of the units before.
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
  for (int u = 0; u < static_cast<int>(state_.size()); ++u) {
    const Unit& unit = stage_.units()[static_cast<std::size_t>(u)];
    Tensor<T> whole;
    if (options_.zero == 3) {
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
    if (options_.zero == 3) {
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
    bring_state_back();
    each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
      widen(master_.data() + stored, part_weights(stored, p.offset + first), n);
    });
    send_state_away();
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

template <class T>
T* DataParallel<T>::part_weights(std::size_t stored, std::size_t flat) {
  return weights_.data() + (options_.zero == 3 ? stored : flat);
}
// What counts in the norm: an element that several ranks have counts on one of them.
template <class T>
template <class G, class See>
void DataParallel<T>::each_gradient(const Tensor<G>& sums, See see) const {
  if (mesh_.replica.rank() != 0) return;
  each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
    if (p.tied_copy || (p.logical.shard.of == 1 && mesh_.tensor.rank() != 0)) return;
    see(sums.data() + at(stored, p.offset + first), n);
  });
}

template <class T>
double DataParallel<T>::squares() const {
  double all = 0;
  with_sums([&]<class G>(const Tensor<G>& sums) {
    SquareSum<G> sum;
    each_gradient(sums, [&](const G* x, std::size_t n) { sum.add(x, n); });
    all = sum.value();
  });
  return all;
}

template <class T>
double DataParallel<T>::largest() const {
  double most = 0;
  with_sums([&]<class G>(const Tensor<G>& sums) {
    ExactSquares<G> squares;
    each_gradient(sums, [&](const G* x, std::size_t n) { squares.see(x, n); });
    most = squares.largest();
  });
  return most;
}

template <class T>
void DataParallel<T>::add_squares(ExactSum& sum, int shift) const {
  with_sums([&]<class G>(const Tensor<G>& sums) {
    ExactSquares<G> squares;
    each_gradient(sums, [&](const G* x, std::size_t n) { squares.add(x, n, shift); });
    const ExactSum mine = squares.sum();
    sum.high += mine.high;
    sum.low += mine.low;
  });
}

template <class T>
void DataParallel<T>::send_state_away() {
  if (!offload_ || (moment1_.empty() && master_.empty())) return;
  std::vector<Tensor<Wide<T>>> state;
  for (Tensor<Wide<T>>* each : {&moment1_, &moment2_, &master_}) state.push_back(std::move(*each));
  offload_->put(0, state);
}

template <class T>
void DataParallel<T>::bring_state_back() {
  if (!offload_) return;
  std::vector<Tensor<Wide<T>>> state;
  offload_->get(0, state);
  if (state.empty()) return;  // is here
  moment1_ = std::move(state[0]);
  moment2_ = std::move(state[1]);
  master_ = std::move(state[2]);
}

template <class T>
void DataParallel<T>::update(int step, double rate, double scale) {
  bring_state_back();
  if (updates())
    each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
      T* w = part_weights(stored, p.offset + first);
      const std::size_t g = at(stored, p.offset + first);
      const double decay = p.decays ? optimizer_.decay : 0;
      const auto place = [&](Tensor<Wide<T>>& state) {
        return state.empty() ? nullptr : state.data() + stored;
      };
      const Update how{optimizer_.adam,
                       {rate, optimizer_.beta1, optimizer_.beta2, optimizer_.epsilon, decay, step},
                       optimizer_.momentum,
                       scale};
      Wide<T>*const moment1 = place(moment1_), *const moment2 = place(moment2_);
      if constexpr (kHasMaster<T>) {  // updates fp32 masters, then rounds them to the weights
        update_weights(reinterpret_cast<Sum*>(place(master_)), moment1, moment2, sums_.data() + g,
                       n, how);
        narrow(w, place(master_), n);
      } else {
        update_weights(w, moment1, moment2, (apart_ ? sums_ : gradients_).data() + g, n, how);
      }
    });
  send_state_away();
  share_weights();
  forget_gradients();
}

template <class T>
void DataParallel<T>::forget_gradients() {
  if (!gradients_.empty()) gradients_.fill_zero();
  if (!sums_.empty()) sums_.fill_zero();
}

template <class T>
void DataParallel<T>::share_weights() {
  if (options_.zero == 3) return;
  const double start = now_s();
  for (const Bucket& b : buckets_)
    if (options_.server)
      mesh_.data.broadcast(weights_.data() + b.begin, b.count());  // of kServer, rank 0
  for (const Bucket& b : buckets_)
    mesh_.shard.all_gather(weights_.data() + b.begin, part(b.count()));
  const double took = mesh_.shard.size() > 1 || options_.server ? now_s() - start : 0;
  exposed_ += took;
  total_ += took;
}

template <class T>
std::vector<TensorPart<HostOf<T>>> DataParallel<T>::pieces() {
  bring_state_back();  // stays until the next update
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
      piece("", master_.data() + stored);
    else
      piece("", part_weights(stored, p.offset + first));
    if (!moment1_.empty()) piece("/m", moment1_.data() + stored);
    if (!moment2_.empty()) piece("/v", moment2_.data() + stored);
  });
  return all;
}

template <class T>
void DataParallel<T>::restored() {
  for (const auto& copy : copies_) copy->put_back(copy->host.data());
  copies_.clear();
  if constexpr (kHasMaster<T>)
    each_piece([&](const Parameter<T>& p, std::size_t first, std::size_t n, std::size_t stored) {
      narrow(part_weights(stored, p.offset + first), master_.data() + stored, n);
    });
  send_state_away();
  share_weights();
}

template <class T>
void DataParallel<T>::visit(const std::function<void(const Parameter<T>&)>& see) {
  for (int u = 0; u < static_cast<int>(state_.size()); ++u) {
    const Unit& unit = stage_.units()[static_cast<std::size_t>(u)];
    want_weights(u);
    for (std::size_t i = unit.first; i < unit.last; ++i) see(stage_.parameters()[i]);
    release_weights(u);
  }
}

WEFT_INSTANTIATE(DataParallel);

}  // namespace weft::train
