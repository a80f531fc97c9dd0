// The server's update and a worker's step. Does not depend on layers.
#include "train/server/async_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "transport/launch/failures.h"

namespace weft::train {
namespace {

// Returns the micro-batches per worker and step. Throws UsageError if they are not divisible.
int checked(World& world, const TrainOptions& o) {
  const auto refuse = [](const std::string& why) { throw UsageError("--sync ps-async: " + why); };
  if (o.mesh.tensor * o.mesh.pipeline > 1 || o.zero > 0)
    refuse("workers have the whole model; leave --tp, --pp and --zero out");
  if (world.size() < 2) refuse("the server is a rank of its own; use -N 2 or more");
  const Index workers = static_cast<Index>(world.size() - 1), all = o.batch / o.micro_batch;
  if (o.batch % o.micro_batch != 0 || all % workers != 0)
    refuse(fmt::format("--batch {} is no multiple of --micro-batch {} x {} workers = {}", o.batch,
                       o.micro_batch, workers, o.micro_batch * workers));
  return static_cast<int>(all / workers);
}

// All weights and gradients of the model, on this rank.
template <class T>
struct Model {
  Model(World& world, const TrainOptions& o, int micro_batches)
      : mesh(world, {.data = world.size(), .shard = 1}),
        stage(o.model, {&mesh.tensor}, {.samples = o.micro_batch, .recompute = o.recompute}),
        store(stage, mesh, {.overlap = false, .micro_batches = micro_batches, .offload = {}},
              o.optimizer) {
    store.initialise(o.seed);
  }
  std::size_t count() {
    std::size_t n = 0;
    for (const auto& p : stage.parameters()) n += p.logical.count();
    return n;
  }
  // Calls see(elements of the stage, elements of the message, count) for each parameter.
  template <class See>
  void each(T* Parameter<T>::*which, double* numbers, See see) {
    for (auto& p : stage.parameters()) {
      see(p.*which, numbers, p.logical.count());
      numbers += p.logical.count();
    }
  }
  void read(T* Parameter<T>::*which, double* to) {
    each(which, to, [](const T* x, double* y, std::size_t n) { std::copy_n(x, n, y); });
  }
  void write(T* Parameter<T>::*which, double* from) {
    each(which, from, [](T* x, const double* y, std::size_t n) {
      std::transform(y, y + n, x, [](double v) { return static_cast<T>(v); });
    });
  }
  Mesh mesh;
  GptStage<T> stage;
  DataParallel<T> store;
};

// Micro-batch m of worker w is number m x workers + w of the step, as in data parallelism.
template <class T>
void work(World& world, const TrainOptions& o, const Text& text, int steps, int micro_batches,
          Model<T>& model) {
  ServerClient client(world.world());
  const int workers = world.size() - 1, me = world.rank() - 1;
  const Index n = o.model.positions;
  std::vector<double> gradient(model.count() + 1), weights(model.count());
  for (int step = 0; step < steps; ++step) {
    if (o.straggler_us > 0 && me + 1 == workers)
      std::this_thread::sleep_for(std::chrono::microseconds(o.straggler_us));
    for (int m = 0; m < micro_batches; ++m) {
      Batch& batch = model.stage.batch(m);
      batch.gradient_scale = 1.0 / micro_batches;
      batch.tokens.resize(o.micro_batch * n);
      batch.targets.resize(o.micro_batch * n);
      const Index first =
          static_cast<Index>(step) * o.batch + static_cast<Index>(m * workers + me) * o.micro_batch;
      for (Index s = 0; s < o.micro_batch; ++s)
        text.sample(o.seed, first + s, n, batch.tokens.data() + s * n,
                    batch.targets.data() + s * n);
    }
    for (int m = 0; m < micro_batches; ++m) {
      model.stage.forward(m, {});
      model.stage.backward(m, {});
    }
    model.read(&Parameter<T>::gradient, gradient.data());
    gradient.back() = 0;
    for (const double loss : model.stage.take_losses()) gradient.back() += loss / micro_batches;
    model.store.forget_gradients();
    client.push_and_pull(gradient, weights);
    model.write(&Parameter<T>::value, weights.data());
  }
}

template <class T>
ServerReport serve_model(World& world, const TrainOptions& o, int steps, int staleness,
                         Model<T>& model, const std::function<void(int, double)>& on_step) {
  const int workers = world.size() - 1;
  std::vector<double> weights(model.count());
  model.read(&Parameter<T>::value, weights.data());
  int updates = 0;
  double losses = 0;
  const ServerOptions server{.iterations = steps, .asynchronous = true, .staleness = staleness};
  return serve(world.world(), server, weights.size() + 1, weights, [&](std::span<double> gradient) {
    model.write(&Parameter<T>::gradient, gradient.data());
    const int step = updates++ / workers + 1;
    const double norm = std::sqrt(model.store.squares());
    const double clipped = o.clip > 0 && norm > o.clip ? o.clip / norm : 1;
    model.store.update(updates, o.rate.at(step) / workers, clipped);
    model.read(&Parameter<T>::value, weights.data());
    losses += gradient.back() / workers;
    if (updates % workers == 0) on_step(step, std::exchange(losses, 0.0));
  });
}

}  // namespace

template <class T>
ServerReport train_asynchronously(World& world, const TrainOptions& o, const Text& text, int steps,
                                  int staleness, const std::function<void(int, double)>& on_step) {
  agree(world, describe(o) + fmt::format(" staleness {} text {}", staleness, text.fingerprint()));
  text.require_sample(o.model.positions);
  const int micro_batches = checked(world, o);
  Model<T> model(world, o, micro_batches);
  ServerReport report;
  if (world.rank() == 0)
    report = serve_model(world, o, steps, staleness, model, on_step);
  else
    work(world, o, text, steps, micro_batches, model);
  world.world().barrier().check();
  return report;
}

#define WEFT_ASYNC(T)                                                                          \
  template ServerReport train_asynchronously<T>(World&, const TrainOptions&, const Text&, int, \
                                                int, const std::function<void(int, double)>&)
WEFT_ASYNC(float);
WEFT_ASYNC(double);

}  // namespace weft::train
