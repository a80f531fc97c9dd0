// DataParallel: has the weights, gradients and optimizer state of a stage, and sums gradients over
// all replicas while the backward pass still runs.
//
// clang-format off
//   ZeRO  weights  gradients  optimizer  sent per step (n ranks, Psi parameters, one micro-batch)
//   0     all      all        all        all-reduce                   2 (n-1)/n Psi
//   1     all      all        1/s        reduce-scatter, all-gather   2 (n-1)/n Psi
//   2     all      1/s        1/s        the same, per micro-batch
//   3     1/s      1/s        1/s        + all-gathers of weights     3 (n-1)/n Psi
// clang-format on
//
// (Rajbhandari et al., arXiv 1910.02054.) s: the size of Mesh::shard, which is n except with shard
// groups (MiCS).
//
// This class is the base class and implements ZeRO 0: buckets, sums, norm, update. Each other mode
// is a short file with the overrides:
//
//   zero1.h             reduce-scatter and all-gather, groups of replicas
//   zero2.h             gradients of a unit leave after each micro-batch; a rank keeps its part
//   zero3.h             weights of a unit are gathered while it computes
//   server_replicas.h   a parameter server takes the place of the all-reduce
//   deterministic.h     sums whose bits do not depend on the number of replicas
//   optimizer_state.h   moments and master weights, and their offload
//
// Gradients are sent in buckets: parts of the flat buffer of at most bucket_bytes, from the
// buffer's end, where the backward pass begins.
//
// 16-bit gradients of a micro-batch accumulate in fp32 sums, which are sent and used by the update:
// 20 bytes per parameter without ZeRO (weight 2, gradient 2, sum 4, master weight 4, moments 8).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "train/mesh/mesh.h"
#include "train/model/gpt_stage.h"
#include "train/operators/exact_sum.h"
#include "train/parallel/optimizer_state.h"

namespace weft::train {

struct DataParallelOptions {
  int zero = 0;
  std::size_t bucket_bytes = 4u << 20;
  bool overlap = true;
  // Sums micro-batches in one order for any number of replicas: see deterministic.h.
  bool deterministic = false;
  int micro_batches = 1;  // number of micro-batches per replica and step
  bool sequence_parallel = false;
  std::string offload;  // folder, or "host", to which optimizer state is offloaded; empty: none
  bool server = false;  // the first replica is a parameter server, with ZeRO 0
  int stages = 1;       // model chunks of this rank, each with a DataParallel
  // Codec of fp32 gradients in the all-reduce, with error feedback; ZeRO 0 only.
  Codec codec = Codec::kNone;
};

template <class T>
class DataParallel : public WeightStore {
 public:
  // For ZeRO 0; make_data_parallel() constructs the other modes. `stage` and `mesh` must outlive
  // this object. The length of the stage's flat buffer is a multiple of mesh.shard.size().
  DataParallel(GptStage<T>& stage, Mesh& mesh, const DataParallelOptions& options,
               const OptimizerOptions& optimizer);
  ~DataParallel() override;

  // Sets every weight from the seed, the tensor's name and the index in the logical tensor: all
  // layouts start with the same model.
  void initialise(std::uint64_t seed);
  // Sets every weight of this rank to value(parameter, index). Threads of the rank call `value`
  // concurrently.
  void fill(const std::function<HostOf<T>(const Parameter<T>&, std::size_t)>& value);

  void want_weights(int) override { poll(); }
  void gradients_done(int unit) override;
  // Advances the buckets in flight. The trainer calls this between operators.
  virtual void poll();

  // To call after the last micro-batch: waits until this rank's part of the gradients is reduced
  // over all replicas.
  virtual void finish();
  // Returns the sum of squares of this rank's part of the gradients. If several ranks have an
  // element, one rank counts it.
  double squares() const;
  // Returns the largest |gradient| of this rank's part, for ExactSum::shift (deterministic mode).
  double largest() const;
  // Adds the squares of this rank's part; the bits of the sum do not depend on how it is split.
  void add_squares(ExactSum& sum, int shift) const;
  // Performs optimizer step `step` (from 1) with gradients times `scale`. Afterwards every rank has
  // the weights that it needs, and the gradients are zero.
  void update(int step, double rate, double scale);
  void forget_gradients();  // a skipped step calls this instead of update()

  // Returns this rank's part of weights, master weights and optimizer state; on a device, copies in
  // host memory.
  std::vector<TensorPart<HostOf<T>>> pieces();
  // Call after a load into pieces(): gives every rank the weights that it needs.
  void restored();
  // Calls see(parameter) unit by unit, with all weights of the unit gathered.
  void visit(const std::function<void(const Parameter<T>&)>& see);

  double exposed_seconds() const { return exposed_; }  // time of waits for buckets and weights
  double total_seconds() const { return total_; }      // time with buckets or weights in flight
  std::uint64_t offloaded_bytes() const { return state_.offloaded_bytes(); }

 protected:
  // Element of the sums over micro-batches and replicas.
  using Sum = std::conditional_t<!kHasMaster<T>, T,
                                 std::conditional_t<kOnDevice<T>, OnDevice<Fp32>, float>>;
  struct Bucket {
    std::size_t begin, end;  // in the flat buffer
    int unit;                // the bucket is ready when this unit's gradients are
    std::size_t count() const { return end - begin; }
  };
  struct BucketInFlight {
    const Bucket* bucket;
    Sum* data = nullptr;      // the bucket's data, all of it
    Tensor<Sum> own = {};     // the bucket's memory, if moved from the unit
    Tensor<Sum> blocks = {};  // every rank's block of this rank's part (deterministic mode)
    Request handle = {};      // handle of the pending call
    // Handle of the first half on a device, where both halves are enqueued together.
    Request first_half = {};
    bool second = false;  // `handle` is the handle of the second half
  };

  // Customization points of a mode.
  // Begins to sum a bucket over the replicas.
  virtual void begin(BucketInFlight& b);
  // Starts a second call if the bucket needs one. Returns false when the sum is complete.
  virtual bool second_half(BucketInFlight&) { return false; }
  // Called when the bucket's sum is complete.
  virtual void arrived(BucketInFlight&) {}
  // Sets the bucket's data: the local gradients.
  virtual void take(BucketInFlight& b) { b.data = sums() + b.bucket->begin; }
  // Accumulates a unit's gradients of one micro-batch in wider sums, if the mode has them.
  virtual void add_to_sums(int unit);
  // Returns the local gradient sums of a unit.
  virtual Sum* sums_of(int unit) { return sums() + unit_at(unit).begin; }
  // Returns whether to send a unit's gradients after `done` micro-batches; if never, finish() sends
  // them.
  virtual bool leaves(int unit, int done) const {
    return !sent_last(unit) && done == options_.micro_batches;
  }
  virtual bool sent_last(int unit) const {
    return unit == stage_.shared_unit() || !options_.overlap;
  }
  virtual void send_unit(int unit);
  // Reduces the whole gradient buffer, without buckets, in stream order with the operators.
  virtual void sum_whole(Sum* all, std::size_t count) { mesh_.data.all_reduce(all, count); }
  // Distributes updated weights to the ranks that did not update them.
  virtual void share_weights() {}

  const Unit& unit_at(int unit) const { return stage_.units()[static_cast<std::size_t>(unit)]; }
  std::size_t part(std::size_t n) const { return n / shards(); }
  std::size_t shards() const { return static_cast<std::size_t>(mesh_.shard.size()); }
  // This rank's part of a bucket's data.
  Sum* own_part(const BucketInFlight& b) const {
    return b.data + static_cast<std::size_t>(mesh_.shard.rank()) * part(b.bucket->count());
  }
  // Returns the gradients that are complete after finish().
  Tensor<Sum>& summed() {
    if constexpr (kHasMaster<T>)
      return sums_;
    else
      return separate_sums_ ? sums_ : gradients_;
  }
  const Tensor<Sum>& summed() const { return const_cast<DataParallel*>(this)->summed(); }
  Sum* sums() { return summed().data(); }
  // All-reduces the gradients of unsharded parameters over tensor ranks: with sequence parallelism
  // each rank computed them from its own rows only.
  template <class G>
  void sum_partial(int unit, G* gradients);
  // sums += a widened copy of the gradients, which become zero.
  void widen_and_add(Sum* sums, T* gradients, std::size_t count);
  void take_front();  // waits until the first bucket of in_flight_ is reduced
  template <class Call>
  void timed(Call call) {  // adds the call's time to the exposed time
    const double start = now_s();
    call();
    exposed_ += now_s() - start;
  }

  GptStage<T>& stage_;
  Mesh& mesh_;
  const DataParallelOptions options_;
  const OptimizerOptions optimizer_;
  // True if this rank has all weights (all gradients), and not only its part.
  const bool whole_weights_, whole_gradients_;
  // Sums are separate from the gradients of a micro-batch: with 16-bit gradients, and in
  // deterministic mode if all ranks have all gradients.
  const bool separate_sums_;
  const bool updates_;           // this rank runs the optimizer
  std::vector<Bucket> buckets_;  // buckets, from the end of the flat buffer
  Tensor<T> weights_, gradients_;
  Tensor<Sum> sums_;             // sums over micro-batches; same length as gradients_
  std::vector<float> residual_;  // residual of compressed gradients; same length as gradients_
  OptimizerState<T> state_;      // of this rank's part
  std::deque<BucketInFlight> in_flight_;
  bool adding_ = false;  // arrived() is adding the first bucket in flight
  double exposed_ = 0, total_ = 0;

 private:
  void make_buckets(std::size_t most);
  bool advance(BucketInFlight& bucket, bool wait);
  void pop_front();
  void sum_tied_gradients();
  void timed_share();
  void set_master();  // sets the master weights from the weights
  template <class See>
  void each_gradient(See see) const;
  // Returns the index in the flat buffer of this rank's part of the bucket.
  std::size_t mine(const Bucket& b) const {
    return b.begin + static_cast<std::size_t>(mesh_.shard.rank()) * part(b.count());
  }
  // Calls call(parameter, first element, count, index in the part's storage) for every parameter in
  // this rank's part.
  void each_piece(const std::function<void(const Parameter<T>&, std::size_t, std::size_t,
                                           std::size_t)>& call) const;
  T* part_weights(std::size_t stored, std::size_t flat) {
    return weights_.data() + (whole_weights_ ? flat : stored);
  }
  std::size_t gradient_at(std::size_t stored, std::size_t flat) const {
    return whole_gradients_ ? flat : stored;
  }

  struct Copy {  // a TensorPart's copy in host memory
    std::vector<HostOf<T>> host;
    std::function<void(const HostOf<T>*)> put_back;
  };
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<int> done_;  // number of finished micro-batches, by unit
  double since_ = 0;       // when the first bucket in flight was sent
};

// Constructs the mode that the options select.
template <class T>
std::unique_ptr<DataParallel<T>> make_data_parallel(GptStage<T>& stage, Mesh& mesh,
                                                    const DataParallelOptions& options,
                                                    const OptimizerOptions& optimizer);

}  // namespace weft::train
