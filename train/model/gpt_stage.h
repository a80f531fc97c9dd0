// The layers of a GPT that one rank of the pipeline has, as a Stage. Its units - embedding, each
// block, head - are what weights are gathered and gradients are sent by.
#pragma once

#include <memory>
#include <vector>

#include "train/model/gpt_layers.h"
#include "train/parallel/offload.h"

namespace weft::train {

// Where the weights and gradients of a stage are while it needs them (data_parallel.h).
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  // They are wanted next, and may be fetched already.
  virtual void expect_weights(int) {}
  virtual void want_weights(int unit) = 0;
  virtual void release_weights(int unit) = 0;
  virtual void want_gradients(int unit) = 0;
  // All gradients of the unit of one more micro-batch have been added. Called from the last unit
  // to the first.
  virtual void gradients_done(int unit) = 0;
};

struct Unit {
  std::size_t first, last;  // its parameters
  std::size_t begin, end;   // its part of the flat weights, a multiple of `multiple` elements
};

template <class T>
class GptStage : public Stage<T> {
 public:
  struct Options {
    int stage = 0, stages = 1;
    Index samples = 1;       // of a micro-batch
    bool recompute = false;  // keep only the inputs of blocks (activation checkpointing)
    std::size_t multiple = 1;
    std::string offload =
        {};  // folder where activations wait for their backward pass; empty: memory
  };
  GptStage(const GptShape& shape, GptParallel parallel, const Options& options);

  void set_store(WeightStore* store) { store_ = store; }
  const std::vector<Unit>& units() const { return units_; }
  std::size_t flat_count() const { return units_.back().end; }
  // Parameters of the unit that point into these flat buffers of the unit. Null: leaves them.
  void bind(int unit, T* weights, T* gradients);
  // The unit that holds a tensor which another stage has too; -1: none.
  int shared_unit() const { return shared_unit_; }
  bool first() const { return options_.stage == 0; }
  bool last() const { return options_.stage + 1 == options_.stages; }
  const GptShape& shape() const { return shape_; }

  Batch& batch(int microbatch);  // to fill before forward()

  std::size_t input_count() const override { return first() ? 0 : boundary_; }
  std::size_t output_count() const override { return last() ? 0 : boundary_; }
  void forward(int microbatch, const T* input, T* output) override;
  void backward_input(int microbatch, const T* grad_output, T* grad_input) override;
  void backward_weight(int microbatch) override;
  void backward(int microbatch, const T* grad_output, T* grad_input) override;
  std::vector<Parameter<T>>& parameters() override { return parameters_; }
  std::size_t activation_bytes(int microbatch) const override;
  std::uint64_t offloaded_bytes() const { return offload_ ? offload_->bytes_moved() : 0; }

  // Of a stage that is the whole model on one rank: logits at every position of one sample.
  Tensor<T> logits(const std::vector<Token>& tokens);

 private:
  struct MicroBatch {
    Batch batch;
    std::vector<Kept<T>> kept;      // by unit
    std::vector<Tensor<T>> inputs;  // by unit, where it is computed again
    std::vector<Kept<T>> early;     // by unit, of Parameter::early, where W is not part of B
  };
  MicroBatch& at(int microbatch);
  bool recomputes(int unit) const;
  bool ties(int unit) const;  // the head here uses the embedding here
  void expect_after(int unit, bool backward);
  void send_away(int microbatch, int unit);
  void bring_back(int microbatch, int unit);
  Tensor<T> unit_backward_input(int unit, MicroBatch& m, Tensor<T> grad, bool with_weights);
  void unit_backward_weight(int unit, MicroBatch& m);

  const GptShape shape_;
  const Options options_;
  std::size_t boundary_;
  std::vector<Parameter<T>> parameters_;
  std::vector<std::unique_ptr<Layer<T>>> layers_;  // a unit each
  std::vector<Unit> units_;
  int shared_unit_ = -1;
  WeightStore* store_ = nullptr;
  std::unique_ptr<Offload<T>> offload_;
  std::vector<std::unique_ptr<MicroBatch>> micro_batches_;
};

// Blocks [first, last) of a stage: as even as can be, the longer ones first.
struct BlockRange {
  Index first, last;
};
BlockRange blocks_of(Index layers, int stage, int stages);

}  // namespace weft::train
