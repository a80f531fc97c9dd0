// DataParallel: keeps the weights, gradients and optimizer state of a stage, and sums gradients
// over all replicas while the backward pass still runs.
//
// clang-format off
//   ZeRO  weights  gradients  optimizer  sent per step (n ranks, Psi parameters, one micro-batch)
//   0     all      all        all        all-reduce                   2 (n-1)/n Psi
//   1     all      all        1/s        reduce-scatter, all-gather   2 (n-1)/n Psi
//   2     all      1/s        1/s        the same, per micro-batch
//   3     1/s      1/s        1/s        + all-gathers of weights     3 (n-1)/n Psi
// clang-format on
//
// (Rajbhandari et al., arXiv 1910.02054.) s: the number of ranks of Mesh::shard, n unless in groups
// (MiCS). An all-reduce then adds each group's sums between the groups: 2 (r-1)/r Psi/s. ZeRO 0 has
// groups of one rank. ZeRO 3 gathers the weights of the next unit while a unit computes.
//
// Gradients are sent in buckets: parts of the flat buffer of at most bucket_bytes, from the
// buffer's end, where the backward pass begins.
//
// A parameter server (--sync ps) takes the place of the all-reduce: the first rank of each
// data-parallel group computes like the others, and alone has the optimizer's state. Gradients are
// reduced to it, bucket by bucket while the backward pass runs; it takes the step and broadcasts
// its weights. Results are those of the all-reduce. Each stage of a pipeline and each rank of a
// tensor-parallel group has a server of its own.
//
// 16-bit gradients of a micro-batch are added to sums in fp32, which travel and which the update
// reads: 20 bytes per parameter without ZeRO (weight 2, gradient 2, sum 4, master weight 4, moments
// 8).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "train/model/gpt_stage.h"
#include "train/operators/exact_sum.h"
#include "train/parallel/mesh.h"
#include "train/parallel/offload.h"

namespace weft::train {

struct OptimizerOptions {
  bool adam = true;  // false: SGD
  double rate = 3e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1, momentum = 0.9;
};

struct DataParallelOptions {
  int zero = 0;
  std::size_t bucket_bytes = 4u << 20;
  bool overlap = true;
  // The sum over micro-batches has one order for any number of replicas: see reduce_in_order().
  bool deterministic = false;
  int micro_batches = 1;  // per replica and step
  bool sequence_parallel = false;
  std::string offload;  // folder, or "host", to which optimizer state is offloaded; empty: none
  bool server = false;  // the first replica is a parameter server, with ZeRO 0
  int stages = 1;       // stages of this rank, each with a DataParallel
  // How gradients in fp32 are written on their way, with error feedback; ZeRO 0 only.
  Codec codec = Codec::kNone;
};

template <class T>
class DataParallel : public WeightStore {
 public:
  // `stage` and `mesh` must outlive this object. The length of the stage's flat buffer is a
  // multiple of mesh.shard.size().
  DataParallel(GptStage<T>& stage, Mesh& mesh, const DataParallelOptions& options,
               const OptimizerOptions& optimizer);
  ~DataParallel() override;

  // Sets every weight from the seed, the tensor's name and the index in the logical tensor, so that
  // all layouts begin with the same model.
  void initialise(std::uint64_t seed);
  // Sets every weight of this rank to value(parameter, index); all of the rank's threads call
  // value.
  void fill(const std::function<HostOf<T>(const Parameter<T>&, std::size_t)>& value);

  void expect_weights(int unit) override;
  void want_weights(int unit) override;
  void release_weights(int unit) override;
  void want_gradients(int unit) override;
  void gradients_done(int unit) override;
  // Advances the buckets in flight. The trainer calls this between operators.
  void poll();

  // Must follow the last micro-batch: waits until this rank's part of the gradients is the sum over
  // all replicas.
  void finish();
  // Returns the sum of squares of this rank's part of the gradients. An element that several ranks
  // have counts on one of them.
  double squares() const;
  // Returns the largest |gradient| of this rank's part, for ExactSum::shift (deterministic mode).
  double largest() const;
  // Adds the squares of this rank's part; the sum has the same bits for any cut into parts.
  void add_squares(ExactSum& sum, int shift) const;
  // Takes the optimizer's step number `step` (from 1) with gradients times `scale`. Afterwards
  // every rank has the weights it needs, and the gradients are zero.
  void update(int step, double rate, double scale);
  void forget_gradients();  // a skipped step calls this instead of update()

  // Returns this rank's part of weights, master weights and optimizer state; for a device, copies
  // in host memory.
  std::vector<TensorPart<HostOf<T>>> pieces();
  // Must follow a load into pieces(): every rank gets the weights it needs.
  void restored();
  // Calls see(parameter) unit by unit, with all weights of the unit gathered.
  void visit(const std::function<void(const Parameter<T>&)>& see);

  double exposed_seconds() const { return exposed_; }  // waits for buckets and weights
  double total_seconds() const { return total_; }      // time with buckets or weights in flight
  std::uint64_t offloaded_bytes() const { return offload_ ? offload_->bytes_moved() : 0; }

 private:
  // Element of sums_.
  using Sum = std::conditional_t<!kHasMaster<T>, T,
                                 std::conditional_t<kOnDevice<T>, OnDevice<Fp32>, float>>;
  struct Bucket {
    std::size_t begin, end;  // in the flat buffer
    int unit;                // the bucket is ready when this unit's gradients are
    std::size_t count() const { return end - begin; }
  };
  struct BucketInFlight {
    const Bucket* bucket;
    char* data;  // elements of type_
    // The bucket's memory, where the unit gave up its gradients (ZeRO 2, 3).
    Tensor<T> own;
    Tensor<Sum> own_sum;
    Tensor<Sum> blocks;  // every rank's block of this rank's part (deterministic mode)
    Request handle;
    Request scatter;         // first half on a device, where both halves are called together
    bool scattered = false;  // `handle` belongs to the last half
  };

  void make_buckets(std::size_t most);
  void send_bucket(const Bucket& bucket);
  void join_replicas(BucketInFlight& bucket);
  bool advance(BucketInFlight& bucket, bool wait);
  void arrived(BucketInFlight& bucket);
  void send_unit(int unit);
  bool reduces_in_order() const { return options_.deterministic && options_.zero < 2; }
  // Whether finish() sends all buckets.
  bool sends_last() const { return !options_.overlap && !options_.deterministic; }
  void reduce_in_order();
  void add_part(std::size_t stored, const char* from, std::size_t n);
  void add_to_sums(int unit);
  void sum_partial(int unit, char* gradients, std::size_t begin);
  void sum_tied_gradients();
  void fetch(int unit);
  void share_weights();
  void set_master();                  // sets the master weights from the weights
  static constexpr Rank kServer = 0;  // of the data axis
  bool updates() const { return !options_.server || mesh_.data.rank() == kServer; }
  template <class G, class See>
  void each_gradient(const Tensor<G>& sums, See see) const;
  // Calls see(tensor) with the gradients that are complete after finish().
  template <class See>
  void with_sums(See see) const {
    apart_ ? see(sums_) : see(gradients_);
  }
  // In place; elements of type_.
  void all_reduce(Axis& axis, char* data, std::size_t count) {
    axis.run([&] { return axis.in_order<T>().all_reduce(data, data, count, type_, RedOp::kSum); });
  }
  std::size_t part(std::size_t n) const { return n / static_cast<std::size_t>(mesh_.shard.size()); }
  // Index in the flat buffer of this rank's part of the bucket.
  std::size_t mine(const Bucket& b) const {
    return b.begin + static_cast<std::size_t>(mesh_.shard.rank()) * part(b.count());
  }
  // Calls call(parameter, first element, count, index in the part's storage) for every parameter in
  // this rank's part.
  void each_piece(const std::function<void(const Parameter<T>&, std::size_t, std::size_t,
                                           std::size_t)>& call) const;
  T* part_weights(std::size_t stored, std::size_t flat);
  // Index in gradients_ or sums_.
  std::size_t at(std::size_t stored, std::size_t flat) const {
    return options_.zero >= 2 ? stored : flat;
  }
  char* sums() {
    return apart_ ? reinterpret_cast<char*>(sums_.data())
                  : reinterpret_cast<char*>(gradients_.data());
  }

  GptStage<T>& stage_;
  Mesh& mesh_;
  // A duplicate of the replica axis for second halves, which follow first halves in this stage's
  // order: stages of a rank on one communicator could order their calls differently per rank.
  Axis between_groups_;
  const DataParallelOptions options_;
  const OptimizerOptions optimizer_;
  // Sums are apart from the gradients of a micro-batch: of 16-bit gradients, and in the
  // deterministic mode where all ranks have all gradients.
  const bool apart_;
  const DType type_;                   // of the elements that are summed
  const std::size_t bytes_each_;       // of such an element
  std::vector<Bucket> buckets_;        // from the end of the flat buffer
  Tensor<T> weights_, gradients_;      // whole (ZeRO 0 to 2; 0 to 1), or this rank's part
  Tensor<Sum> sums_;                   // as long as gradients_; where apart_
  std::vector<float> residual_;        // of compressed gradients, as long as gradients_
  Tensor<Wide<T>> moment1_, moment2_;  // moments of this rank's part
  Tensor<Wide<T>> master_;             // this rank's weights in all digits, where T has fewer
  struct Copy {                        // a TensorPart's copy in host memory
    std::vector<HostOf<T>> host;
    std::function<void(const HostOf<T>*)> put_back;
  };
  std::vector<std::unique_ptr<Copy>> copies_;
  std::unique_ptr<Offload<Wide<T>>> offload_;
  void send_state_away();
  void bring_state_back();
  struct UnitState {
    Tensor<T> weights, gradients;  // gathered while needed (ZeRO 3), while summed (ZeRO 2, 3)
    Tensor<Sum> sum;               // of the gradients, where sums are apart (ZeRO 2, 3)
    int wanted = 0, done = 0;
    std::optional<Request> fetch;  // gather of the weights
    DeviceMark fetched;            // the end of that gather, on a device
    double since = 0, arrived = 0;
  };
  std::vector<UnitState> state_;
  // Gathers that the device waits for, not the host, and when they began.
  std::deque<std::pair<Request, double>> fetches_;
  std::deque<BucketInFlight> in_flight_;
  bool adding_ = false;  // arrived() is adding the first bucket in flight
  double exposed_ = 0, total_ = 0, since_ = 0;
};

}  // namespace weft::train
