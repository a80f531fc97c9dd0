// The thread of a lane: agrees with the other ranks on each task, and runs it on one path. This
// file is independent of how the paths move data.
#include "coll/gpu/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "coll/engine/compute.h"
#include "coll/engine/signature.h"
#include "coll/gpu/blocks.h"
#include "coll/gpu/gpudirect.h"
#include "coll/gpu/mapped.h"
#include "topo/base/log.h"
#include "topo/base/thread.h"

namespace weft {
namespace {

// The companion for some of the communicator's ranks; distinct from DeviceLane::Kind.
constexpr std::uint32_t kAcross = 4;

}  // namespace

DeviceLane::DeviceLane(Device& device, GroupState& group, Kind kind)
    : device_(device),
      group_(group),
      core_(*group.core),
      kind_(kind),
      gates_(device, waiting_streams_of(&core_)) {
  if (group.ranks.size() > 1)
    staging_ = PooledMemory(device, PooledMemory::kPinned, kComputeScratchMax,
                            &waiting_streams_of(&core_));
  {
    const CoreLock lock(core_.mutex);
    core_.waiting.start_calling();
    companion_ = core_.groups.make_companion(group, static_cast<std::uint32_t>(kind), group.ranks);
  }
  wire_ = Communicator(std::shared_ptr<GroupState>(std::shared_ptr<void>(), companion_.get()));
  events_.resize(static_cast<std::size_t>(device_.count()));
  gpudirect_ = std::make_unique<GpuDirect>(*this);
  try {
    thread_ = start_thread("the thread of a GPU's calls", [this] { serve(); });
  } catch (...) {
    const CoreLock lock(core_.mutex);
    core_.groups.forget(*companion_);
    throw;
  }
}

DeviceLane::~DeviceLane() {
  if (kind_ == Kind::kCalls) {
    MutexLock lock(mutex_);
    changed_.wait(lock,
                  [&]() WEFT_REQUIRES(mutex_) { return (queue_.empty() && !busy_) || stop_; });
  }
  stop();
  gpudirect_.reset();
  for (const auto& of_gpu : events_)
    for (const Device::Event e : of_gpu) device_.free_event(e);
  const CoreLock lock(core_.mutex);
  for (GroupState* const of : {across_.get(), companion_.get()}) {
    if (!of) continue;
    of->part_of = {};
    core_.groups.forget(*of);
  }
}

void DeviceLane::stop() noexcept {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool DeviceLane::idle() const {
  const MutexLock lock(mutex_);
  return !busy_ && (kind_ == Kind::kGraphs || queue_.empty());
}

// Whether waiting is pointless. Also checks for a failure of the job, since no other thread may be
// at work in the process.
bool DeviceLane::given_up() {
  if (++looks_ % 64 == 0) core_.failures.notice();
  return stop_.load(std::memory_order_relaxed) || group_.broken.load(std::memory_order_relaxed);
}

// ---- calls ---------------------------------------------------------------------------------

void DeviceLane::add(std::unique_ptr<DeviceOperation> op, Device::Stream stream) {
  unless_streams_wait([&] {
    device_peers().trim(device_);
    device_peers().open_wanted(device_);
    PooledMemory::trim();
  });
  for (const int gpu :
       {op->call.ordered ? device_.gpu_of(stream) : -1, op->mine.in.gpu, op->mine.out.gpu})
    if (gpu >= 0) prepare_gpu(device_, gpu);
  op->mine.ways = gpudirect_->ways(*op);
  {
    const MutexLock lock(mutex_);
    if (stop_) throw Error("the World of this Communicator has ended");
    if (op->call.ordered) op->gate = gates_.take();
    if (kind_ == Kind::kGraphs) {
      op->mine.call.about[1] |= queue_.size() + 1;
      seal(op->mine.call);
    }
  }
  if (op->call.ordered) gates_.put(op->gate, stream, kind_ == Kind::kGraphs);
  {
    const MutexLock lock(mutex_);
    queue_.push_back(std::move(op));
  }
  changed_.notify_all();
}

// ---- the thread ----------------------------------------------------------------------------

// The task to run next; null if there will be none.
DeviceOperation* DeviceLane::next(MutexLock& lock) {
  if (kind_ == Kind::kCalls) {
    changed_.wait(lock, [&]() WEFT_REQUIRES(mutex_) { return stop_ || !queue_.empty(); });
    return queue_.empty() ? nullptr : queue_.front().get();
  }
  for (;;) {
    if (stop_) return nullptr;
    for (const auto& op : queue_)
      if (op->gate.arrived->exchange(0, std::memory_order_acquire) != 0) return op.get();
    if (queue_.empty())
      changed_.wait(lock);
    else
      changed_.wait_for(lock, std::chrono::microseconds(20));
  }
}

void DeviceLane::serve() {
  lane_thread = true;
  device_.enter_thread();
  MutexLock lock(mutex_);
  while (DeviceOperation* op = next(lock)) {
    busy_ = true;
    lock.unlock();
    run(*op);
    lock.lock();
  }
}

void DeviceLane::run(DeviceOperation& op) {
  Status status;
  const std::uint64_t record = begin_record(op);
  try {
    status = run_steps(op);
  } catch (const std::exception& e) {
    status = {Code::kTransport, fmt::format("{}: {}", name(op.collective()), e.what()),
              group_.ranks[static_cast<std::size_t>(group_.me)]};
  }
  if (!status.ok()) staging_.abandon();
  // Become idle before anybody is notified: a notified thread may end the World.
  std::unique_ptr<DeviceOperation> finished;
  {
    const MutexLock lock(mutex_);
    busy_ = false;
    if (kind_ == Kind::kCalls) {
      finished = std::move(queue_.front());
      queue_.pop_front();
    }
  }
  changed_.notify_all();
  {
    CoreLock lock(core_.mutex);
    if (!status.ok()) core_.failures.fail(status, &group_, lock);
    if (!status.ok()) status = group_.failure;
    companion_->part_of = {};
    if (!op.handle) core_.telemetry->end(record, status.ok());
    if (op.handle) {
      if (status.ok()) group_.remember(op.call.tag, op.mine.call);
      core_.tasks.finish(op.handle, status);
      if (op.detached) op.handle->release();
      core_.waiting.lane_task_over();
    }
    core_.run_callbacks(lock);
  }
  if (!op.call.ordered) return;
  {
    const MutexLock lock(mutex_);
    gates_.open(op.gate, kind_ == Kind::kGraphs);
  }
  unless_streams_wait([&] {
    device_peers().trim(device_);
    device_peers().open_wanted(device_);
  });
}

// Sets the task that the steps belong to. A replay is a task of its own.
std::uint64_t DeviceLane::begin_record(DeviceOperation& op) {
  const CoreLock lock(core_.mutex);
  const std::uint64_t number = op.handle ? op.handle->number : ++replays_;
  const std::uint64_t record =
      op.handle ? op.handle->record : core_.telemetry->begin(group_, *op.prepared, number);
  companion_->part_of = {.record = record,
                         .tag = op.call.tag,
                         .group = &group_,
                         .prepared = op.prepared,
                         .number = number,
                         .head = op.mine.call};
  return record;
}

void DeviceLane::wait_for_stream(const DeviceOperation& op) {
  if (!op.call.ordered || kind_ == Kind::kGraphs)
    return;  // a graph has already arrived: see next()
  Backoff patience;
  while (op.gate.arrived->load(std::memory_order_acquire) == 0) {
    if (given_up()) throw Error("aborted while waiting for the stream to reach this task");
    patience.pause();
  }
  op.gate.arrived->store(0, std::memory_order_relaxed);
}

Status DeviceLane::run_steps(DeviceOperation& op) {
  const std::size_t n = group_.ranks.size();
  {
    const CoreLock lock(core_.mutex);
    if (group_.broken) return group_.failure;
    companion_->forced[static_cast<std::size_t>(op.collective())] = op.prepared->of.forced;
    companion_->shape.deterministic = op.prepared->of.deterministic;
  }
  std::vector<DeviceRecord> records(n);
  static_assert(sizeof(DeviceRecord) % sizeof(std::uint64_t) == 0);
  if (Status s = wire_.all_gather(&op.mine, records.data(),
                                  sizeof(DeviceRecord) / sizeof(std::uint64_t), DType::kUInt64);
      !s.ok())
    return s;
  if (Status s = agreement_of(records, group_.ranks, kind_ == Kind::kGraphs); !s.ok()) return s;

  // Ranks that read each other's memory send no messages that could be verified. A rank that is
  // alone reads its own memory, of any kind.
  const bool alone = n == 1;
  bool on_device = false,
       direct = alone || (!op.forced() && !core_.options.integrity && group_.one_machine &&
                          n <= static_cast<std::size_t>(kDeviceOperands) &&
                          op.collective() != Collective::kBarrier);
  std::uint64_t longest = 0, ways = op.mine.ways;
  for (const DeviceRecord& of_rank : records) {
    on_device = on_device || of_rank.on_device;
    direct = direct && (alone || !of_rank.staged_only);
    ways &= of_rank.ways;
    longest = std::max(longest, of_rank.longest);
  }
  if (!on_device || (alone && std::max(op.mine.in.gpu, op.mine.out.gpu) < 0)) {
    wait_for_stream(op);
    Status s = wire_.start(op.collective(), Call(op.call), op.root()).wait();
    note_path(op, nullptr);
    return s;
  }
  const auto way = static_cast<GpuDirect::Way>(ways & -ways);  // the first one
  std::optional<MappedBuffers> buffers;
  if (direct) {
    std::vector<Rank> everybody(n);
    std::iota(everybody.begin(), everybody.end(), 0);
    buffers.emplace(*this, op, records, std::move(everybody));
  } else if (ways != 0) {
    buffers.emplace(*this, op, records, gpudirect_->neighbours());
  }
  std::vector<DeviceBlock> blocks;
  bool as_expected = true;
  if (direct && op.call.is_vector)
    if (Status s = ask_for_blocks(*this, op, blocks, as_expected); !s.ok()) return s;
  wait_for_stream(op);
  if (buffers) {
    // Agrees that all inputs are ready, and whether every rank reaches every buffer.
    std::int32_t mine = buffers->reaches_all() && as_expected, all = mine;
    const auto meet = [&] {
      if (buffers->members().size() == 1) return Status();
      return wire_.all_reduce(&mine, &all, 1, DType::kInt32, RedOp::kMin);
    };
    if (Status s = meet(); !s.ok()) return s;
    if (all) {
      if (direct)
        run_direct(*this, op, records, *buffers, blocks);
      else if (Status s = gpudirect_->run(way, op, records, *buffers); !s.ok())
        return s;
      note_path(op, direct                    ? &kDirectPath
                    : way == GpuDirect::kNics ? &kGpuDirectPath
                                              : &kStagedHostsPath);
      return meet();
    }
    if (!buffers->why_not().empty() && !std::exchange(told_, true))
      log().info("weft: rank {}: device memory is staged through host memory: {}",
                 group_.ranks[static_cast<std::size_t>(group_.me)], buffers->why_not());
  }
  Status s = run_staged(*this, op, longest);
  note_path(op, &kStagedPath);
  return s;
}

void DeviceLane::note_path(const DeviceOperation& op, const Algorithm* path) {
  const CoreLock lock(core_.mutex);
  group_.last = path && !op.forced() ? path : companion_->last;
  group_.last_on_board = !path && companion_->last_on_board;
}

// ---- what the steps need -------------------------------------------------------------------

Device::Event DeviceLane::event(int gpu, std::size_t which) {
  auto& of_gpu = events_.at(static_cast<std::size_t>(gpu));
  while (of_gpu.size() <= which) of_gpu.push_back(device_.make_event(gpu));
  return of_gpu[which];
}

void DeviceLane::wait(Device::Event event) {
  Backoff patience;
  while (!device_.reached(event)) {
    if (given_up()) throw Error("aborted while waiting for the GPU");
    patience.pause();
  }
}

// Ranks of several hosts use a companion of their own.
Request DeviceLane::start_by(Compute& compute, Collective c, const Call& call, Rank root,
                             std::span<const Rank> across) {
  GroupState* group = companion_.get();
  const auto set = [&](Compute* to) {
    const CoreLock lock(core_.mutex);
    if (!across.empty()) {
      if (!across_) {
        std::vector<Rank> world;
        for (const Rank r : across) world.push_back(group_.ranks[static_cast<std::size_t>(r)]);
        across_ = core_.groups.make_companion(group_, kAcross | static_cast<std::uint32_t>(kind_),
                                              std::move(world));
      }
      group = across_.get();
      group->part_of = companion_->part_of;
      group->shape.deterministic = companion_->shape.deterministic;
    }
    group->compute = to;
  };
  set(&compute);
  Request task = Communicator(std::shared_ptr<GroupState>(std::shared_ptr<void>(), group))
                     .start(c, Call(call), root);
  set(nullptr);
  return task;
}

void DeviceLane::fail(const std::string& why) {
  CoreLock lock(core_.mutex);
  core_.failures.fail({Code::kTransport, why, group_.ranks[static_cast<std::size_t>(group_.me)]},
                      &group_, lock);
}

std::byte* DeviceLane::staging(std::size_t bytes) {
  if (bytes > staging_.size()) staging_ = PooledMemory(device_, PooledMemory::kPinned, bytes);
  return staging_.get();
}

}  // namespace weft
