// Trainer: the phases of one step. Does not depend on buckets or operators.
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <new>
#include <numeric>
#include <thread>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "train/base/threads.h"
#include "train/checkpoint/index.h"
#include "train/operators/memory.h"

namespace weft::train {

namespace {

// During its lifetime, gradients advance between the pieces of an operator, not only between units.
struct PollBetweenPieces {
  explicit PollBetweenPieces(std::function<void()> poll) {
    set_between_pieces([poll = std::move(poll)] {
      try {
        poll();
      } catch (const std::exception&) {  // the next poll between units throws it again
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
  check(options);
  text.require_sample(options.model.positions);
  if (!kOnDevice<T> && options.offload == DeviceOffload::kHost)
    throw UsageError(
        "--offload host with --backend cpu: that is where everything is; give a folder");
  if (kDType<T> != DType::kFloat32 || kOnDevice<T>)
    if (options.compress != "none")
      throw UsageError(
          fmt::format("--compress {}: only gradients of --type float on --backend cpu "
                      "are compressed; say so, or leave it out",
                      options.compress));
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
                    "can be counted; use a larger --micro-batch",
                    options.batch, options.micro_batch, all));
  micro_batches_ = static_cast<int>(all / replicas);

  GptParallel parallel = parallel_of(options);
  parallel.tensor = &mesh_->tensor;
  const DataParallelOptions data{
      options.zero,    options.bucket_bytes,
      options.overlap, options.deterministic,
      micro_batches_,  parallel.sequence,
      options.offload, options.parameter_server,
      options.chunks,  codec_from(options.compress).value_or(Codec::kNone)};
  for (int c = 0; c < options.chunks; ++c) {
    stages_.push_back(std::make_unique<GptStage<T>>(
        options.model, parallel,
        typename GptStage<T>::Options{
            c * options.mesh.pipeline + mesh_->at.pipeline, options.chunks * options.mesh.pipeline,
            options.micro_batch, options.recompute, static_cast<std::size_t>(mesh_->shard.size()),
            options.offload}));
    stores_.push_back(make_data_parallel<T>(*stages_.back(), *mesh_, data, options.optimizer));
    stores_.back()->initialise(options.seed);
  }
  bring_samples();
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
  std::function<AxisBytes()> sent;
  if (options.count_bytes)
    sent = [counter = AxisCounter(world, mesh_->shape)] { return counter.sent(); };
  meter_.emplace([this] { return counts(); }, std::move(sent));
}

template <class T>
Trainer<T>::~Trainer() = default;

// Micro-batch m of replica d has number m x replicas + d in its step (see deterministic.h). An
// evaluation uses the first items of its text.
template <class T>
void Trainer<T>::bring_samples() {
  const auto all = static_cast<std::uint64_t>(micro_batches_);
  const auto first_sample = [this, all](std::uint64_t item) {
    const auto replicas = static_cast<Index>(options_.mesh.data);
    const auto number = item % all * replicas + static_cast<Index>(mesh_->at.data);
    return item / all * options_.batch + number * options_.micro_batch;
  };
  for (auto& stage : stages_) {
    if (!stage->first() && !stage->last()) continue;
    stage->batch(micro_batches_ - 1);  // allocates all of them
    feeds_.push_back(std::make_unique<SampleFeed<T>>(
        first_sample, options_.seed, options_.micro_batch, options_.model.positions));
    stage->on_forward = [this, &feed = *feeds_.back(), &of = *stage](int m, bool begins) {
      if (!begins) return feed.done();
      of.batch(m).gradient_scale = loss_scale() / (micro_batches_ * options_.mesh.data);
      feed.fill(of.batch(m), *passes_.text, passes_.first + static_cast<std::uint64_t>(m),
                passes_.end);
    };
  }
}

// Returns the sum of squares of all gradients. Its bits do not depend on the layout.
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

// The counters whose differences StepMeter reports.
template <class T>
StepCounts Trainer<T>::counts() const {
  StepCounts now{.tensor = mesh_->tensor.seconds(),
                 .pipeline = runtime_->waited_seconds(),
                 .in_order = mesh_->data.seconds() + mesh_->ends.seconds()};
  for (const auto& store : stores_) {
    now.gradients += store->total_seconds();
    now.exposed += store->exposed_seconds();
    now.offloaded += store->offloaded_bytes();
  }
  for (const auto& stage : stages_) now.offloaded += stage->offloaded_bytes();
  return now;
}

// Runs forward and backward passes of all micro-batches, and sends gradients meanwhile.
template <class T>
void Trainer<T>::run_passes() {
  const PollBetweenPieces polls([this] {
    for (auto& store : stores_) store->poll();
  });
  passes_ = {&text_, static_cast<std::uint64_t>(step_) * static_cast<std::uint64_t>(micro_batches_),
             std::numeric_limits<std::uint64_t>::max()};
  for (auto& feed : feeds_) feed->take_records();
  runtime_->run();
  brought_.clear();
  for (auto& feed : feeds_) std::ranges::copy(feed->take_records(), std::back_inserter(brought_));
}

// Sets the loss of each micro-batch at its number, on one rank each; other elements stay.
template <class T>
void Trainer<T>::take_losses(std::span<double> by_number) {
  for (auto& stage : stages_) {
    if (!stage->last()) continue;
    const std::vector<double> losses = stage->take_losses();
    for (int m = 0; m < micro_batches_ && mesh_->tensor.rank() == 0; ++m)
      by_number[static_cast<std::size_t>(m * options_.mesh.data + mesh_->at.data)] =
          losses[static_cast<std::size_t>(m)];
  }
}

// All-reduces (sum) the loss of each micro-batch, the squares of the gradients, and the busy
// seconds of each rank; exactly one rank contributes each number.
template <class T>
void Trainer<T>::agree_on_numbers(StepReport& report) {
  const auto total = static_cast<std::size_t>(micro_batches_ * options_.mesh.data);
  std::vector<double> numbers(total + 1 + static_cast<std::size_t>(world_.size()), 0.0);
  for (const auto& store : stores_)
    if (!options_.deterministic) numbers[total] += store->squares();
  take_losses({numbers.data(), total});
  const auto busy = numbers.begin() + static_cast<std::ptrdiff_t>(total) + 1;
  busy[world_.rank()] = meter_->busy_seconds();
  mesh_->all.all_reduce(numbers.data(), numbers.size());
  report.loss = std::accumulate(numbers.begin(), busy - 1, 0.0) / static_cast<double>(total);
  report.norm = std::sqrt(options_.deterministic ? exact_squares() : numbers[total]) / loss_scale();
  compare_ranks({busy, numbers.end()}, report);
}

// Decides whether to skip the step. All ranks have the same numbers, so their decisions are equal.
template <class T>
void Trainer<T>::judge(StepReport& report) {
  report.loss_scale = loss_scale();
  if (options_.loss_scale > 0)
    report.skipped = !scaler_.step(report.norm);
  else if ((report.skipped = !std::isfinite(report.norm)))
    scaler_.skip();
  const bool lost = report.skipped && (report.loss_scale <= 1 || !std::isfinite(report.loss));
  report.lost = lost_ = lost ? lost_ + 1 : 0;
  report.step = ++step_;
  report.rate = options_.rate.at(step_);
}

template <class T>
void Trainer<T>::update(const StepReport& report) {
  const double clipped =
      options_.clip > 0 && report.norm > options_.clip ? options_.clip / report.norm : 1;
  for (auto& store : stores_) {
    if (report.skipped)
      store->forget_gradients();
    else  // a first update with a number above 1 would be too small: AdamW's bias correction
      store->update(step_ - scaler_.skipped(), report.rate, clipped / report.loss_scale);
  }
}

template <class T>
StepReport Trainer<T>::step() {
  StepReport report;
  meter_->begin();
  if (world_.rank() + 1 == world_.size() && options_.straggler_us > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(options_.straggler_us));
  run_passes();
  for (std::size_t c = stores_.size(); c-- > 0;) stores_[c]->finish();

  meter_->pause();
  if (mesh_->pipeline.size() > 1)
    report.bubble = measured_bubble(runtime_->last(), mesh_->pipeline.comm());
  agree_on_numbers(report);  // without ZeRO, the rest of the step needs no other rank
  judge(report);
  meter_->resume();

  update(report);
  meter_->end(report);
  return report;
}

template <class T>
void Trainer<T>::complete_step(double loss, double norm) {
  StepReport report;
  report.loss = loss;
  report.norm = norm;
  judge(report);
  update(report);
}

template <class T>
double Trainer<T>::evaluate(const Text& text) {
  text.require_sample(options_.model.positions);
  if (!evaluation_) {
    std::vector<Stage<T>*> stages;
    for (auto& stage : stages_) stages.push_back(stage.get());
    evaluation_ =
        std::make_unique<PipelineRuntime<T>>(make_forward_schedule(runtime_->schedule().shape),
                                             mesh_->pipeline.comm(), std::move(stages));
  }
  struct Forget {  // on every return: feeds must not keep the caller's text
    std::vector<std::unique_ptr<SampleFeed<T>>>& feeds;
    ~Forget() {
      for (auto& feed : feeds) feed->forget();
    }
  } forget{feeds_};
  passes_ = {&text, 0, static_cast<std::uint64_t>(micro_batches_)};
  for (auto& stage : stages_) stage->evaluate(true);
  evaluation_->run();
  for (auto& stage : stages_) stage->evaluate(false);
  std::vector<double> losses(static_cast<std::size_t>(micro_batches_ * options_.mesh.data));
  take_losses(losses);
  mesh_->all.all_reduce(losses.data(), losses.size());
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
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

// Gathers the parts of replica 0 on rank 0, tensor by tensor; an all-gather first describes them.
template <class T>
std::map<std::string, std::vector<HostOf<T>>> Trainer<T>::collect() {
  using H = HostOf<T>;
  auto list = nlohmann::json::array();
  std::vector<H> mine;
  for (auto& store : stores_)
    store->visit([&](const Parameter<T>& p) {
      if (mesh_->at.data != 0) return;
      const std::size_t n = p.logical.count();
      list.push_back(to_json(IndexEntry{p.logical, 0, n, "", 0, 0}));
      mine.resize(mine.size() + n);
      to_host(mine.data() + mine.size() - n, p.value, n);
    });
  std::map<std::string, std::vector<H>> whole;
  const auto lists = job_of(world_).all_gather(list.dump());
  for (Rank r = 0; r < world_.size(); ++r) {
    std::vector<Logical> parts;
    std::size_t count = 0;
    for (const auto& entry : nlohmann::json::parse(lists[static_cast<std::size_t>(r)])) {
      parts.push_back(entry_from_json(entry).logical);
      count += parts.back().count();
    }
    if (count == 0) continue;
    if (world_.rank() == r && r != 0)
      require(mesh_->all.comm().send(mine.data(), mine.size(), kDType<H>, 0));
    if (world_.rank() != 0) continue;
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

WEFT_INSTANTIATE(Trainer);

}  // namespace weft::train
