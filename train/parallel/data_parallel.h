// Data parallelism: where the weights, gradients and optimizer state of a stage are, and how
// gradients become sums over all replicas while the backward pass still runs.
//
// clang-format off
//   ZeRO  weights  gradients  optimizer  sent per step (n ranks, Psi parameters, one micro-batch)
//   0     all      all        all        all-reduce                   2 (n-1)/n Psi
//   1     all      all        1/s        reduce-scatter, all-gather   2 (n-1)/n Psi
//   2     all      1/s        1/s        the same, per micro-batch
//   3     1/s      1/s        1/s        + all-gathers of weights     3 (n-1)/n Psi
// clang-format on
//
// (Rajbhandari et al., arXiv 1910.02054.) s: the ranks of Mesh::shard, all n unless in groups
// (MiCS); each group's sums are then all-reduced between groups: 2 (r-1)/r Psi/s. Stage 0 is groups
// of one. With stage 3, the weights of the next unit are gathered while this one computes.
//
// Gradients travel in buckets: pieces of the flat buffer, at most so many bytes, from its end, as
// the backward pass fills it from there.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/model/gpt_stage.h"
#include "train/operators/exact_sum.h"
#include "train/parallel/mesh.h"
#include "train/parallel/offload.h"

namespace weft::train {

struct OptimizerOptions {
  bool adam = true;  // else SGD
  double rate = 3e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1, momentum = 0.9;
};

struct DataParallelOptions {
  int zero = 0;
  std::size_t bucket_bytes = 4u << 20;
  bool overlap = true;
  // The sum over micro-batches has one order, whatever the number of replicas: see reduce_in_order.
  // 16-bit gradients are added in fp32 and rounded once, in the end.
  bool deterministic = false;
  int micro_batches = 1;  // of this replica, per step
  bool sequence_parallel = false;
  std::string offload;  // folder where the optimizer's state waits for the next step; empty: memory
  bool server = false;  // the first replica is a parameter server (data_parallel_server.cc); ZeRO 0
  int stages = 1;       // of this rank, each with a DataParallel
};

template <class T>
class DataParallel : public WeightStore {
 public:
  // stage and mesh must outlive it; the stage's flat buffer is a multiple of mesh.shard.size().
  DataParallel(GptStage<T>& stage, Mesh& mesh, const DataParallelOptions& options,
               const OptimizerOptions& optimizer);
  ~DataParallel() override;

  // Every element from the seed, its tensor's name and its place in the logical tensor: the same
  // model in every layout.
  void initialise(std::uint64_t seed);
  // value(parameter, index) for every element here, on all of this rank's threads.
  void fill(const std::function<HostOf<T>(const Parameter<T>&, std::size_t)>& value);

  void expect_weights(int unit) override;
  void want_weights(int unit) override;
  void release_weights(int unit) override;
  void want_gradients(int unit) override;
  void gradients_done(int unit) override;
  // Moves what is under way. Called between operators.
  void poll();

  // After the last micro-batch: waits until this rank's part of the gradients is the sum over all
  // replicas.
  void finish();
  // Sum of squares of this rank's part; elements that several ranks have count on one of them.
  double squares() const;
  // The same in two steps with the same bits wherever the parts are cut (deterministic mode).
  double largest() const;
  void add_squares(ExactSum& sum, int shift) const;
  // One step of the optimizer (from 1) with gradients times `scale`; then every rank has the
  // weights it needs, and gradients are zero.
  void update(int step, double rate, double scale);
  void forget_gradients();  // instead of update()

  // This rank's part of weights and optimizer state; of a device, copies in host memory, and the
  // master weights where there are such.
  std::vector<Piece<HostOf<T>>> pieces();
  // After pieces were read: every rank gets the weights it needs.
  void restored();
  // Calls see(parameter) with all weights in place, unit by unit.
  void visit(const std::function<void(const Parameter<T>&)>& see);

  double exposed_seconds() const { return exposed_; }  // waited for with nothing else to do
  double total_seconds() const { return total_; }      // gradients were on the way
  std::uint64_t offloaded_bytes() const { return offload_ ? offload_->bytes_moved() : 0; }

 private:
  struct Bucket {
    std::size_t begin, end;  // in the flat buffer
    int unit;                // ready when the gradients of this unit are
    std::size_t count() const { return end - begin; }
  };
  struct Travel {  // a bucket under way
    const Bucket* bucket;
    T* data;
    Tensor<T> own;     // its memory, where the bucket has no place of its own
    Tensor<T> blocks;  // of this rank's part, from every rank (deterministic mode)
    Request handle;
    Request scatter;         // on a device, where the second half is called with the first
    bool scattered = false;  // the handle is that of the last half
  };

  void make_buckets(std::size_t most);
  void launch(const Bucket& bucket);
  void join_replicas(Travel& travel);
  bool advance(Travel& travel, bool wait);
  void arrived(Travel& travel);
  void send_unit(int unit);
  bool reduces_in_order() const { return options_.deterministic && options_.zero < 2; }
  // After all micro-batches; not where they are added one after the other.
  bool sends_last() const { return !options_.overlap && !options_.deterministic; }
  void reduce_in_order();
  void add_sum(std::size_t stored, const T* from, std::size_t n);
  void take_sums();
  void sum_partial(int unit);
  void add_twin();
  void fetch(int unit);
  void share_weights();
  void set_master();  // from the weights
  bool updates() const { return !options_.server || mesh_.data.rank() == 0; }
  Request push(T* gradients, std::size_t count);
  void push_in_order(Wide<T>* gradients, std::size_t count);
  void pull();
  void each_gradient(const std::function<void(const T*, std::size_t)>& see) const;
  std::size_t part(std::size_t n) const { return n / static_cast<std::size_t>(mesh_.shard.size()); }
  // Where this rank's part of the bucket begins in the flat buffer.
  std::size_t mine(const Bucket& b) const {
    return b.begin + static_cast<std::size_t>(mesh_.shard.rank()) * part(b.count());
  }
  // For every parameter in this rank's part: call(parameter, first element, count, where in the
  // part's own storage).
  void each_piece(const std::function<void(const Parameter<T>&, std::size_t, std::size_t,
                                           std::size_t)>& call) const;
  T* part_weights(std::size_t stored, std::size_t flat);
  T* part_gradients(std::size_t stored, std::size_t flat);

  GptStage<T>& stage_;
  Mesh& mesh_;
  // The replica axis for second halves, which go when the first are over: in the order of this
  // stage, while another of this rank is at one place here and at another place there.
  Axis between_groups_;
  const DataParallelOptions options_;
  const OptimizerOptions optimizer_;
  std::vector<Bucket> buckets_;    // from the end of the flat buffer
  Tensor<T> weights_, gradients_;  // whole (ZeRO 0 to 2, 0 to 1), or this rank's part
  // Of earlier micro-batches, in the deterministic order: where all ranks have all gradients, or
  // where T has fewer digits than a sum needs.
  Tensor<Wide<T>> sums_;
  Tensor<Wide<T>> moment1_, moment2_;  // of this rank's part
  Tensor<Wide<T>> master_;             // its weights in all digits, where T has fewer
  struct Copy {                        // of a piece, in host memory
    std::vector<HostOf<T>> host;
    std::function<void(const HostOf<T>*)> put_back;
  };
  std::vector<std::unique_ptr<Copy>> copies_;
  std::unique_ptr<Offload<Wide<T>>> offload_;
  void send_state_away();
  void bring_state_back();
  struct UnitState {
    Tensor<T> weights, gradients;  // while needed, where not kept whole
    int wanted = 0, done = 0;
    std::optional<Request> fetch;  // of the weights
    double since = 0, arrived = 0;
  };
  std::vector<UnitState> state_;
  std::deque<Travel> travels_;
  bool adding_ = false;  // what the first of them brought
  double exposed_ = 0, total_ = 0, since_ = 0;
};

}  // namespace weft::train
