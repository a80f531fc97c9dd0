// Trainer: one step, told in order. This file knows neither buckets nor operators.
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iomanip>
#include <limits>
#include <new>
#include <numeric>
#include <sstream>
#include <thread>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "train/operators/memory.h"
#include "train/parallel/parallel.h"

namespace weft::train {

std::string describe(const TrainOptions& o) {
  return fmt::format(
      "vocabulary {} positions {} width {} heads {} layers {} tied {} dp {} tp {} pp {} order {} "
      "shard {} batch {} micro-batch {} schedule {} chunks {} zero {} bucket {} overlap {} "
      "deterministic {} recompute {} sequence {} vocab-parallel {} seed-style {} adam {} decay {} "
      "clip {} seed {} server {} lr {} warm-up {} start {} steps {} floor {} loss-scale {} "
      "offload {} algo {} beta1 {} beta2 {} epsilon {} momentum {}",
      o.model.vocabulary, o.model.positions, o.model.width, o.model.heads, o.model.layers,
      o.model.tied, o.mesh.data, o.mesh.tensor, o.mesh.pipeline, o.mesh.order, o.mesh.shard,
      o.batch, o.micro_batch, o.schedule, o.chunks, o.zero, o.bucket_bytes, o.overlap,
      o.deterministic, o.recompute, o.sequence_parallel, o.vocab_parallel, o.seed_style,
      o.optimizer.adam, o.optimizer.decay, o.clip, o.seed, o.parameter_server, o.rate.peak,
      o.rate.warm_up, o.rate.start, o.rate.steps, o.rate.floor, o.loss_scale,
      o.offload.empty()                   ? "nowhere"
      : o.offload == DeviceOffload::kHost ? DeviceOffload::kHost
                                          : "folder",
      o.mesh.algorithm, o.optimizer.beta1, o.optimizer.beta2, o.optimizer.epsilon,
      o.optimizer.momentum);
}

// Ranks that disagree about sizes would wait for messages that nobody sends; those that disagree
// about the update would part without a word.
void agree(World& world, const std::string& mine) {
  const auto all = job_of(world).all_gather(mine);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    std::istringstream a(all[0]), b(all[r]);
    std::string name, x, y;
    while (a >> name >> std::quoted(x) && b >> name >> std::quoted(y) && x == y) continue;
    throw UsageError(
        fmt::format("rank {} has {} {}, rank 0 has {}; give every rank the same "
                    "options and data",
                    r, name, y, x));
  }
}

namespace {

// What every rank finds out by itself.
void check(const TrainOptions& o, Rank me) {
  try {
    check_shape(o.model, o.mesh.tensor, o.mesh.pipeline * o.chunks, o.micro_batch,
                o.sequence_parallel, o.vocab_parallel);
    coordinates(o.mesh, me);
    if (o.seed_style && o.sequence_parallel)
      throw Error("--tp-style seed with --sequence-parallel: not together; leave one out");
    if (o.parameter_server && o.zero > 0)
      throw Error(fmt::format(
          "--sync ps with --zero {}: the server has all of the optimizer's state; leave one out",
          o.zero));
    if (o.deterministic && o.zero >= 2) {
      if (o.mesh.shard != 0 && o.mesh.shard != o.mesh.data)
        throw Error(
            fmt::format("--deterministic with --zero {} and --shard-group {}: sums would "
                        "depend on the groups; leave one out",
                        o.zero, o.mesh.shard));
      // Its gradient leaves once per step, all micro-batches together.
      if (o.model.tied && o.mesh.pipeline * o.chunks > 1)
        throw Error(
            fmt::format("--deterministic with --zero {} and --pp {}: the tied head's sums "
                        "would depend on --dp; use --untied or --zero 1",
                        o.zero, o.mesh.pipeline));
    }
    // Nobody would add up the gradients of a tied embedding's two copies: see Mesh::ends.
    if (o.chunks > 1 && o.mesh.pipeline == 1)
      throw Error(fmt::format(
          "--chunks {} with --pp 1: there is no pipeline whose ranks could have several "
          "stages; leave it out, or say --pp 2 or more",
          o.chunks));
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

AxisBytes minus(const AxisBytes& a, const AxisBytes& b) {
  return {a.data - b.data, a.tensor - b.tensor, a.pipeline - b.pipeline, a.other - b.other};
}
AxisBytes plus(const AxisBytes& a, const AxisBytes& b) {
  return {a.data + b.data, a.tensor + b.tensor, a.pipeline + b.pipeline, a.other + b.other};
}

// While it lives, gradients move on between the pieces of operators too, not only between units.
struct PollBetweenPieces {
  explicit PollBetweenPieces(std::function<void()> poll) {
    set_between_pieces([poll = std::move(poll)] {
      try {
        poll();
      } catch (const std::exception&) {  // the next poll between units says it again
      }
    });
  }
  ~PollBetweenPieces() { set_between_pieces(nullptr); }
};

MeshShape with_groups(MeshShape shape, int zero) {
  if (zero == 0) shape.shard = 1;
  return shape;
}

}  // namespace

template <class T>
Trainer<T>::Trainer(World& world, const TrainOptions& options, const Text& text)
    : world_(world), options_(options), text_(text), scaler_(options.loss_scale) {
  agree(world, describe(options) + fmt::format(" type {}-{} text {}", kOnDevice<T> ? "cuda" : "cpu",
                                               weft::name(kDType<T>), text.fingerprint()));
  check(options, world.rank());
  text.require_sample(options.model.positions);
  if (!kOnDevice<T> && options.offload == DeviceOffload::kHost)
    throw UsageError(
        "--offload host with --backend cpu: that is where everything is; give a folder");
  if (kOnDevice<T> && options.parameter_server)
    throw UsageError(
        "--sync ps with --backend cuda: its server is on the processor; leave one out");
  mesh_ = std::make_unique<Mesh>(world, with_groups(options.mesh, options.zero));
  const Index replicas = static_cast<Index>(options.mesh.data);
  const Index all = options.batch / options.micro_batch;  // micro-batches, of all replicas
  if (options.batch % options.micro_batch != 0 || all % replicas != 0)
    throw UsageError(fmt::format("--batch {} is no multiple of --micro-batch {} x --dp {} = {}",
                                 options.batch, options.micro_batch, options.mesh.data,
                                 options.micro_batch * replicas));
  if (all > static_cast<Index>(std::numeric_limits<int>::max()))
    throw UsageError(
        fmt::format("--batch {} with --micro-batch {}: {} micro-batches are more than "
                    "can be counted; take a larger --micro-batch",
                    options.batch, options.micro_batch, all));
  micro_batches_ = static_cast<int>(all / replicas);

  const GptParallel parallel{&mesh_->tensor, options.sequence_parallel && options.mesh.tensor > 1,
                             options.seed_style, options.vocab_parallel};
  const DataParallelOptions data{options.zero,          options.bucket_bytes,     options.overlap,
                                 options.deterministic, micro_batches_,           parallel.sequence,
                                 options.offload,       options.parameter_server, options.chunks};
  for (int c = 0; c < options.chunks; ++c) {
    stages_.push_back(std::make_unique<GptStage<T>>(
        options.model, parallel,
        typename GptStage<T>::Options{
            c * options.mesh.pipeline + mesh_->at.pipeline, options.chunks * options.mesh.pipeline,
            options.micro_batch, options.recompute, static_cast<std::size_t>(mesh_->shard.size()),
            options.offload}));
    stores_.push_back(
        std::make_unique<DataParallel<T>>(*stages_.back(), *mesh_, data, options.optimizer));
    stores_.back()->initialise(options.seed);
  }
  std::vector<Stage<T>*> stages;
  for (auto& stage : stages_) stages.push_back(stage.get());
  PipelineSchedule schedule;
  try {
    schedule = make_pipeline_schedule(options.schedule,
                                      {options.mesh.pipeline, micro_batches_, options.chunks});
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
  runtime_ = std::make_unique<PipelineRuntime<T>>(std::move(schedule), mesh_->pipeline.comm(),
                                                  std::move(stages));
  runtime_->on_action = [this](const PipelineAction& action, bool before) {
    if (action.op != PipeOp::kForward) return;
    if (before)
      before_forward_ = bytes_sent(world_, mesh_->shape);
    else
      forward_bytes_ =
          plus(forward_bytes_, minus(bytes_sent(world_, mesh_->shape), before_forward_));
  };
}

template <class T>
Trainer<T>::~Trainer() = default;

// Micro-batch m of replica d is number m x replicas + d of the step (see reduce_in_order).
template <class T>
void Trainer<T>::load_batches() {
  const Index n = options_.model.positions;
  for (auto& stage : stages_) {
    if (!stage->first() && !stage->last()) continue;
    for (int m = 0; m < micro_batches_; ++m) {
      Batch& batch = stage->batch(m);
      batch.gradient_scale = loss_scale() / (micro_batches_ * options_.mesh.data);
      try {
        batch.tokens.resize(options_.micro_batch * n);
        batch.targets.resize(options_.micro_batch * n);
      } catch (const std::bad_alloc&) {
        out_of_memory(options_.micro_batch * n, sizeof batch.tokens[0]);
      }
      const auto number = static_cast<Index>(m * options_.mesh.data + mesh_->at.data);
      for (Index s = 0; s < options_.micro_batch; ++s)
        text_.sample(
            options_.seed,
            static_cast<std::uint64_t>(step_) * options_.batch + number * options_.micro_batch + s,
            n, batch.tokens.data() + s * n, batch.targets.data() + s * n);
    }
  }
}

// The sum of squares of all gradients, with the same bits in every layout.
template <class T>
double Trainer<T>::exact_squares() {
  double largest = 0;
  for (const auto& store : stores_) largest = std::max(largest, store->largest());
  mesh_->all.all_reduce(&largest, 1, RedOp::kMax);
  if (largest == 0 || !std::isfinite(largest)) return largest;
  const int shift = ExactSum::shift(largest);
  ExactSum sum;
  for (const auto& store : stores_) store->add_squares(sum, shift);
  std::int64_t both[] = {sum.high, sum.low};
  mesh_->all.run(
      [&] { return mesh_->all.comm().all_reduce(both, both, 2, DType::kInt64, RedOp::kSum); });
  return ExactSum{both[0], both[1]}.value(shift);
}

template <class T>
StepReport Trainer<T>::step() {
  StepReport report;
  const double start = now_s();
  const auto waited = [&] {
    std::array<double, 4> s{mesh_->tensor.seconds(), pipeline_seconds_, 0, 0};
    for (const auto& store : stores_) {
      s[2] += store->total_seconds();
      s[3] += store->exposed_seconds();
    }
    return s;
  };
  const auto waited_before = waited();
  const AxisBytes begin = bytes_sent(world_, mesh_->shape);
  const auto waited_in_order = [&] { return mesh_->data.seconds() + mesh_->ends.seconds(); };
  const double in_order_before = waited_in_order();
  if (world_.rank() + 1 == world_.size() && options_.straggler_us > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(options_.straggler_us));
  forward_bytes_ = {};
  load_batches();
  const PipelineRun& run = [&]() -> const PipelineRun& {
    const PollBetweenPieces polls([this] {
      for (auto& store : stores_) store->poll();
    });
    return runtime_->run();
  }();
  pipeline_seconds_ += static_cast<double>(run.end_ns - run.begin_ns - run.compute_ns) * 1e-9;
  for (std::size_t c = stores_.size(); c-- > 0;) stores_[c]->finish();
  const AxisBytes reduced = bytes_sent(world_, mesh_->shape);

  // The losses of all micro-batches by their number, then the sum of squares: each from one rank.
  const auto total = static_cast<std::size_t>(micro_batches_ * options_.mesh.data);
  std::vector<double> numbers(total + 1 + static_cast<std::size_t>(world_.size()), 0.0);
  double* busy = numbers.data() + total + 1;  // seconds of each rank
  for (std::size_t c = 0; c < stages_.size(); ++c) {
    if (!options_.deterministic) numbers[total] += stores_[c]->squares();
    if (!stages_[c]->last() || mesh_->tensor.rank() != 0) continue;
    for (int m = 0; m < micro_batches_; ++m)
      numbers[static_cast<std::size_t>(m * options_.mesh.data + mesh_->at.data)] =
          stages_[c]->batch(m).loss;
  }
  const auto waited_so_far = waited();
  busy[world_.rank()] = now_s() - start - (waited_so_far[0] - waited_before[0]) -
                        (waited_so_far[1] - waited_before[1]) -
                        (waited_so_far[3] - waited_before[3]) -
                        (waited_in_order() - in_order_before);
  mesh_->all.all_reduce(numbers.data(), numbers.size());
  for (std::size_t i = 0; i < total; ++i) report.loss += numbers[i];
  report.loss /= static_cast<double>(total);
  const double* slowest = std::max_element(busy, busy + world_.size());
  report.busy_seconds.assign(busy, busy + world_.size());
  report.straggler = static_cast<Rank>(slowest - busy);
  report.straggler_ratio =
      *slowest * world_.size() / std::accumulate(busy, busy + world_.size(), 0.0);
  const double scaled = report.loss_scale = loss_scale();
  if (options_.deterministic) numbers[total] = exact_squares();
  report.norm = std::sqrt(numbers[total]) / scaled;
  if (options_.loss_scale > 0)
    report.skipped = !scaler_.step(report.norm);
  else if ((report.skipped = !std::isfinite(report.norm)))
    scaler_.skip();
  const bool lost = report.skipped && (scaled <= 1 || !std::isfinite(report.loss));
  report.lost = lost_ = lost ? lost_ + 1 : 0;
  if (mesh_->pipeline.size() > 1) report.bubble = measured_bubble(run, mesh_->pipeline.comm());

  const AxisBytes agreed = bytes_sent(world_, mesh_->shape);
  ++step_;
  report.step = step_;
  report.rate = options_.rate.at(step_);
  const double scale =
      options_.clip > 0 && report.norm > options_.clip ? options_.clip / report.norm : 1;
  for (auto& store : stores_) {
    if (report.skipped)
      store->forget_gradients();
    else  // AdamW counts updates: one that thinks it is the twentieth is too small for a first
      store->update(step_ - scaler_.skipped(), report.rate, scale / scaled);
  }
  report.sent = plus(minus(reduced, begin), minus(bytes_sent(world_, mesh_->shape), agreed));
  report.sent_forward = forward_bytes_;
  const auto waited_after = waited();
  report.tensor_seconds = waited_after[0] - waited_before[0];
  report.pipeline_seconds = waited_after[1] - waited_before[1];
  report.gradient_seconds = waited_after[2] - waited_before[2];
  report.exposed_seconds = waited_after[3] - waited_before[3];
  for (const auto& stage : stages_) report.offloaded += stage->offloaded_bytes();
  for (const auto& store : stores_) report.offloaded += store->offloaded_bytes();
  report.offloaded -= std::exchange(offloaded_, report.offloaded);
  report.seconds = now_s() - start;
  return report;
}

template <class T>
std::vector<TensorPart<HostOf<T>>> Trainer<T>::pieces() {
  std::vector<TensorPart<HostOf<T>>> all;
  for (auto& store : stores_)
    for (auto& piece : store->pieces()) all.push_back(std::move(piece));
  return all;
}

template <class T>
void Trainer<T>::restored() {
  for (auto& store : stores_) store->restored();
}

// One replica sends its parts to rank 0, tensor by tensor, after saying what they are.
template <class T>
std::map<std::string, std::vector<HostOf<T>>> Trainer<T>::collect() {
  using H = HostOf<T>;
  std::string list;
  std::vector<H> mine;
  for (auto& store : stores_)
    store->visit([&](const Parameter<T>& p) {
      if (mesh_->at.data != 0) return;
      list += p.logical.name;
      for (const std::size_t s : p.logical.shape) list += fmt::format(" {}", s);
      list += fmt::format(" / {} {} {}\n", p.logical.shard.dim, p.logical.shard.index,
                          p.logical.shard.of);
      mine.resize(mine.size() + p.logical.count());
      to_host(mine.data() + mine.size() - p.logical.count(), p.value, p.logical.count());
    });
  std::map<std::string, std::vector<H>> whole;
  const auto lists = job_of(world_).all_gather(list);
  for (Rank r = 0; r < world_.size(); ++r) {
    if (lists[static_cast<std::size_t>(r)].empty()) continue;
    if (world_.rank() == r && r != 0)
      require(mesh_->all.comm().send(mine.data(), mine.size(), kDType<H>, 0));
    if (world_.rank() != 0) continue;
    std::vector<Logical> parts;
    std::size_t count = 0;
    std::istringstream lines(lists[static_cast<std::size_t>(r)]);
    for (std::string line, word; std::getline(lines, line);) {
      std::istringstream in(line);
      Logical l;
      in >> l.name;
      while (in >> word && word != "/") l.shape.push_back(std::stoull(word));
      in >> l.shard.dim >> l.shard.index >> l.shard.of;
      count += l.count();
      parts.push_back(std::move(l));
    }
    std::vector<H> theirs(count);
    if (r != 0)
      require(mesh_->all.comm().recv(theirs.data(), count, kDType<H>, r));
    else
      theirs = mine;
    const H* at = theirs.data();
    for (const Logical& l : parts) {
      auto& tensor = whole[l.name];
      tensor.resize(l.logical_count());
      for (std::size_t i = 0; i < l.count(); ++i) tensor[l.logical_index(i)] = *at++;
    }
  }
  return whole;
}

template class Trainer<float>;
template class Trainer<double>;
#define WEFT_TRAINER(E) template class Trainer<OnDevice<E>>;
WEFT_DEVICE_ELEMENTS(WEFT_TRAINER)

}  // namespace weft::train
