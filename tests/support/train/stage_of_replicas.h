// One stage with all layers on each of several replicas, driven by the test, so that it can inspect
// the state in the middle of a pass.
#pragma once

#include <functional>
#include <memory>

#include "support/train/train_runs.h"

namespace weft::testing {

// Forwards to the wrapped store, and calls `see` after each unit: in the forward pass when its
// weights are released, in the backward pass when its gradients are complete.
struct SeeingStore : train::WeightStore {
  explicit SeeingStore(train::WeightStore& to) : store(to) {}
  void expect_weights(int unit) override { store.expect_weights(unit); }
  void want_weights(int unit) override { store.want_weights(unit); }
  void release_weights(int unit) override {
    store.release_weights(unit);
    if (forward && see) see(unit);
  }
  void want_gradients(int unit) override { store.want_gradients(unit); }
  void gradients_done(int unit) override {
    store.gradients_done(unit);
    if (see) see(unit);
  }
  train::WeightStore& store;
  bool forward = true;  // the current pass
  std::function<void(int unit)> see;
};

template <class T>
struct Replica {
  Replica(World& world, const train::GptShape& shape, train::DataParallelOptions options,
          train::Index samples)
      : mesh(world,
             {.data = world.size(), .shard = options.zero == 0 ? 1 : 0, .algorithm = "ring"}),
        stage(shape, {&mesh.tensor},
              {.samples = samples, .multiple = static_cast<std::size_t>(mesh.shard.size())}),
        made(train::make_data_parallel<T>(stage, mesh, options, {})),
        store(*made),
        seeing(store) {
    store.initialise(1);
    stage.set_store(&seeing);
    const train::Text data = train::text();
    for (int m = 0; m < options.micro_batches; ++m) {
      train::Batch& batch = stage.batch(m);
      batch.gradient_scale = 1.0 / (options.micro_batches * world.size());
      batch.tokens.resize(samples * shape.positions);
      batch.targets.resize(samples * shape.positions);
      for (train::Index s = 0; s < samples; ++s)
        data.sample(1, static_cast<std::uint64_t>(m * world.size() + world.rank()) * samples + s,
                    shape.positions, batch.tokens.data() + s * shape.positions,
                    batch.targets.data() + s * shape.positions);
    }
  }
  void forward(int microbatch) {
    seeing.forward = true;
    stage.forward(microbatch, {});
  }
  void backward(int microbatch) {
    seeing.forward = false;
    stage.backward(microbatch, {});
  }
  train::Mesh mesh;
  train::GptStage<T> stage;
  std::unique_ptr<train::DataParallel<T>> made;
  train::DataParallel<T>& store;
  SeeingStore seeing;
};

}  // namespace weft::testing
