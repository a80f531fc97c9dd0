// GptStage: the layers of a GPT on one pipeline rank, as a Stage. Each unit (embedding, block,
// head) is gathered as a whole, and its gradients are sent as a whole.
#pragma once

#include <memory>
#include <vector>

#include "train/model/gpt_layers.h"
#include "train/operators/offload.h"

namespace weft::train {

// WeightStore provides a unit's weights and gradients while the stage needs them (data_parallel.h).
// This base class always has all weights and gradients.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  // The stage needs the unit's weights next: the store may prefetch them.
  virtual void expect_weights(int) {}
  virtual void want_weights(int) {}
  virtual void release_weights(int) {}
  virtual void want_gradients(int) {}
  // The gradients of one more micro-batch are added to the unit's gradients. The backward pass
  // calls this from the last unit to the first.
  virtual void gradients_done(int) {}
};

struct Unit {
  std::size_t first, last;  // the unit's parameters
  // The unit's range in the flat weights; the length is a multiple of Options::multiple.
  std::size_t begin, end;
};

template <class T>
class GptStage : public Stage<T> {
 public:
  struct Options {
    int stage = 0, stages = 1;
    Index samples = 1;       // number of samples of a micro-batch
    bool recompute = false;  // save only the inputs of blocks (activation checkpointing)
    std::size_t multiple = 1;
    std::string offload =
        {};  // folder to which activations are offloaded, or "host"; empty: no offload
  };
  GptStage(const GptShape& shape, GptParallel parallel, const Options& options);

  void set_store(WeightStore* store) { store_ = store; }
  const std::vector<Unit>& units() const { return units_; }
  std::size_t flat_count() const { return units_.back().end; }
  // Points the unit's parameters into these flat buffers. If a buffer is null, leaves its pointers
  // unchanged.
  void bind(int unit, T* weights, T* gradients);
  // Returns the index of the unit with a tied embedding whose copy is in another stage; -1: none.
  int shared_unit() const { return shared_unit_; }
  bool first() const { return options_.stage == 0; }
  bool last() const { return options_.stage + 1 == options_.stages; }
  const GptShape& shape() const { return shape_; }

  // Input of forward() in the first and the last stage, which the caller fills before forward() or
  // in on_forward. Allocates all batches up to `microbatch`: call it for the last before forward().
  Batch& batch(int microbatch);
  // forward() calls this when it starts and when it ends. May be empty.
  std::function<void(int microbatch, bool begins)> on_forward;
  // While on, forward() saves no activations, and no backward pass may follow.
  void evaluate(bool on) { evaluates_ = on; }
  // Last stage only: returns the mean loss of each micro-batch of the step. On a device: one copy,
  // which synchronizes with the compute stream.
  std::vector<double> take_losses();

  std::size_t input_count() const override { return first() ? 0 : boundary_; }
  std::size_t output_count() const override { return last() ? 0 : boundary_; }
  Tensor<T> forward(int microbatch, Tensor<T> input) override;
  Tensor<T> backward_input(int microbatch, Tensor<T> grad_output) override {
    return pass_back(microbatch, std::move(grad_output), false);
  }
  void backward_weight(int microbatch) override;
  Tensor<T> backward(int microbatch, Tensor<T> grad_output) override {
    return pass_back(microbatch, std::move(grad_output), true);
  }
  std::vector<Parameter<T>>& parameters() override { return parameters_; }
  std::uint64_t offloaded_bytes() const { return offload_ ? offload_->bytes_moved() : 0; }

  // Returns the logits from position `begin` on, of one sample that ends with `tokens`. The stage
  // must be the whole model. Keys and values of earlier positions come from earlier calls (KV
  // cache).
  Tensor<T> logits(std::vector<Token> tokens, Index begin = 0);

 private:
  struct MicroBatch {
    Batch batch;
    std::vector<SavedForBackward<T>> kept;  // by unit
    std::vector<Tensor<T>> inputs;          // inputs of recomputed units, by unit
    // By unit: gradients of Parameter::early, if B and W are separate.
    std::vector<SavedForBackward<T>> early;
  };
  MicroBatch& at(int microbatch);
  bool recomputes(int unit) const;
  bool ties(int unit) const;  // the unit is a head tied to this stage's embedding
  void expect_after(int unit, bool backward);
  void send_away(int microbatch, int unit);
  void bring_back(int microbatch, int unit);
  Tensor<T> pass_back(int microbatch, Tensor<T> grad, bool with_weights);
  Tensor<T> unit_backward_input(int unit, MicroBatch& m, Tensor<T> grad, bool with_weights);
  void unit_backward_weight(int unit, MicroBatch& m);

  const GptShape shape_;
  const Options options_;
  std::size_t boundary_;
  std::vector<Parameter<T>> parameters_;
  std::vector<std::unique_ptr<Layer<T>>> layers_;  // one per unit
  // Losses of the step's micro-batches, in the last stage.
  Tensor<LossSum<T>> losses_;
  std::vector<Unit> units_;
  int shared_unit_ = -1;
  bool evaluates_ = false;
  WeightStore* store_ = nullptr;
  std::unique_ptr<Offload<T>> offload_;
  std::vector<std::unique_ptr<MicroBatch>> micro_batches_;
  std::vector<SavedForBackward<T>> cached_;  // KV caches in inference, by unit
};

// Returns the number of blocks per stage. The last stage gets fewer, since it also computes the
// head: `heads` times a rank's part, since tensor ranks may shard or replicate the head.
std::vector<Index> blocks_of_stages(const GptShape& shape, int stages, double heads = 1);

}  // namespace weft::train
