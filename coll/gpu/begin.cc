// Hands calls on device memory and calls ordered by a stream to the lanes that run them. This file
// does not depend on the path that a call takes.
#include "coll/gpu/begin.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "coll/engine/signature.h"
#include "coll/footprint.h"
#include "coll/gpu/blocks.h"
#include "coll/gpu/gpu_task.h"
#include "coll/gpu/lane.h"
#include "coll/runtime/arguments.h"
#include "coll/runtime/selector.h"

namespace weft {
namespace {

constexpr std::uint64_t kNoRecord = ~std::uint64_t{0};  // Task::record

std::string describe(const Residence& r) {
  if (r.kind == MemoryKind::kDevice) return fmt::format("{} (GPU {})", name(r.kind), r.gpu);
  return name(r.kind);
}

bool of_host(MemoryKind k) { return k == MemoryKind::kHost || k == MemoryKind::kPinned; }

// Where the buffers of a call are; looked up only for buffers that the rank has.
struct Buffers {
  Residence in, out;
  bool has_in, has_out;
};

Status check_kinds(Collective c, const Buffers& b) {
  if (!b.has_in || !b.has_out) return {};
  const bool in_on = b.in.kind == MemoryKind::kDevice, out_on = b.out.kind == MemoryKind::kDevice;
  if ((in_on && of_host(b.out.kind)) || (out_on && of_host(b.in.kind)))
    return {Code::kInvalidArgument,
            fmt::format("{}: in is {}, out is {}: pass both in device memory or both in host "
                        "memory; cudaMemcpyAsync moves one of them",
                        name(c), describe(b.in), describe(b.out))};
  if (in_on && out_on && b.in.gpu != b.out.gpu)
    return {
        Code::kInvalidArgument,
        fmt::format("{}: in is memory of GPU {}, out of GPU {}: a rank's buffers are on one GPU",
                    name(c), b.in.gpu, b.out.gpu)};
  return {};
}

DeviceLane& lane_of(Device& device, GroupState& g, DeviceLanes& lanes, DeviceLane::Kind kind)
    WEFT_REQUIRES(lanes.mutex) {
  auto& lane = kind == DeviceLane::Kind::kCalls ? lanes.calls : lanes.graphs;
  if (!lane) lane = std::make_unique<DeviceLane>(device, g, kind);
  return *lane;
}

// Records the properties of the buffers that the other ranks need.
void tell_buffers(Device& device, DeviceOperation& op, Collective c, bool in_place,
                  const Buffers& buffers, std::uint64_t bytes_in, std::uint64_t bytes_out) {
  if (buffers.has_in) op.mine.in = device_address(device, op.call.in, bytes_in, buffers.in);
  if (buffers.has_out) op.mine.out = device_address(device, op.call.out, bytes_out, buffers.out);
  const auto plain = [](const Residence& r, bool has) {
    return has && r.kind == MemoryKind::kManaged;
  };
  op.mine.on_device = op.mine.in.gpu >= 0 || op.mine.out.gpu >= 0 ||
                      plain(buffers.in, buffers.has_in) || plain(buffers.out, buffers.has_out);
  const bool both = buffers.has_in && buffers.has_out;
  op.mine.staged_only = (c == Collective::kAllToAll && in_place && both) ||
                        (buffers.has_in && op.mine.in.gpu < 0) ||
                        (buffers.has_out && op.mine.out.gpu < 0);
}

// Checks that the World works, and that a graph that captures the stream can contain the call.
Status check_call(Device& device, GroupState& g, const char* title, bool ordered,
                  Device::Stream stream, bool blocking, bool& captured) {
  {
    const CoreLock lock(g.core->mutex);
    if (g.broken) return g.failure;
  }
  captured = ordered && device.capturing(stream);
  if (!captured || blocking) return {};
  return {Code::kInvalidArgument,
          fmt::format("{}: a call that is captured in a graph has no handle; use the form "
                      "without _async",
                      title)};
}

std::shared_ptr<DeviceLanes> lanes_of(GroupState& g) {
  const CoreLock lock(g.core->mutex);
  if (!g.device) g.device = std::make_shared<DeviceLanes>();
  return g.device;
}

// Describes the call, and puts its task on its stream and into its lane.
Task* start(Device& device, GroupState& g, std::unique_ptr<DeviceOperation> op, Collective c,
            Rank root, bool in_place, bool captured, bool blocking) {
  Core& core = *g.core;
  std::shared_ptr<DeviceLanes> lanes = lanes_of(g);
  Task* handle = nullptr;
  const MutexLock order(lanes->mutex);
  DeviceLane& lane =
      lane_of(device, g, *lanes, captured ? DeviceLane::Kind::kGraphs : DeviceLane::Kind::kCalls);
  const Device::Stream stream = op->call.stream;
  {
    const CoreLock lock(core.mutex);
    op->prepared = described(g, c, op->call,
                             {.forced = g.forced[static_cast<std::size_t>(c)],
                              .count = op->call.count,
                              .root = root,
                              .type = op->call.type,
                              .op = op->call.op,
                              .in_place = in_place,
                              .deterministic = g.shape.deterministic,
                              .lane = true,
                              .on_device = op->mine.on_device != 0,
                              .replay = captured});
    op->mine.call = op->prepared->head;
    if (!captured) {
      g.number_call(op->call, *op->prepared, ++g.sequence);
      op->mine.call = op->call.head;
      seal(op->mine.call);
      op->mine.before = g.past[(g.next_past + g.past.size() - 1) % g.past.size()].head;
      handle = new GpuTask(g, op->prepared, g.sequence);
      core.telemetry->open(*handle);
      op->handle = handle;
      op->detached = op->call.ordered && blocking;
    }
  }
  const bool detached = op->detached;
  try {
    lane.add(std::move(op), stream);
  } catch (...) {
    if (handle) {
      const CoreLock lock(core.mutex);
      core.telemetry->end_at_once(handle->record);
      handle->release();
    }
    throw;
  }
  return detached ? nullptr : handle;
}

// Whether all calls with blocks of different sizes go to the lane, wherever their memory is: a rank
// without blocks cannot know where the blocks of other ranks are, so all ranks decide by common
// knowledge.
bool all_take_a_lane(const GroupState& g) {
  if (g.ranks.size() == 1) return false;
  return std::ranges::all_of(
      g.ranks, [&](Rank r) { return g.core->links.has_device[static_cast<std::size_t>(r)] != 0; });
}

}  // namespace

Task* begin_on_device(Device& device, GroupState& g, Collective c, const Call& call, Rank root,
                      bool in_place, bool blocking, Status& status, bool& taken) {
  // Calls that a lane itself makes use host memory.
  if (g.id >> g.core->groups.id_bits != 0) return nullptr;
  const std::size_t n = g.ranks.size();
  const Footprint use = footprint(c, g.me, root);
  const bool any = call.is_vector || call.count > 0;
  Buffers buffers{{},
                  {},
                  any && call.in && use.in != Part::kNothing,
                  any && call.out && use.out != Part::kNothing};
  if (buffers.has_in) buffers.in = device.residence(call.in);
  if (buffers.has_out)
    buffers.out = call.in == call.out && buffers.has_in ? buffers.in : device.residence(call.out);
  taken = call.ordered || buffers.in.kind == MemoryKind::kDevice ||
          buffers.out.kind == MemoryKind::kDevice || (call.is_vector && all_take_a_lane(g));
  if (!taken) return nullptr;

  status = check_kinds(c, buffers);
  if (!status.ok()) return nullptr;
  if (!any && c != Collective::kBarrier) {  // the host path, which counts as a call
    taken = false;
    return nullptr;
  }
  try {
    bool captured = false;
    status = check_call(device, g, name(c), call.ordered, call.stream, blocking, captured);
    if (!status.ok()) return nullptr;
    auto op = std::make_unique<DeviceOperation>(*g.core);
    op->call = call;
    op->mine.longest = call.count;
    op->mine.factor = call.factor;
    op->blocks = own_blocks(op->call, n);
    for (const auto counts : {op->call.counts, op->call.recv_counts})
      for (const std::size_t count : counts)
        op->mine.longest = std::max<std::uint64_t>(op->mine.longest, count);
    const std::size_t element = size_of(call.type);
    const std::size_t bytes_in = extent(device_blocks(c, op->call, root, g.me, n, false)) * element;
    const std::size_t bytes_out = extent(device_blocks(c, op->call, root, g.me, n, true)) * element;
    if (n == 1 && call.ordered && !call.is_vector && call.op != RedOp::kPreMulSum) {
      if (c != Collective::kBarrier && call.in != call.out)  // there are no peers to wait for
        device.copy(call.out, call.in, std::min(bytes_in, bytes_out), device.gpu_of(call.stream),
                    call.stream);
      return nullptr;
    }
    buffers.has_in = bytes_in > 0;
    buffers.has_out = bytes_out > 0;
    tell_buffers(device, *op, c, in_place, buffers, bytes_in, bytes_out);
    return start(device, g, std::move(op), c, root, in_place, captured, blocking);
  } catch (const Error& e) {
    status = {Code::kTransport,
              fmt::format("{}{}: {}", name(c), call.is_vector ? "_v" : "", e.what())};
    return nullptr;
  }
}

bool on_device(const void* data) noexcept {
  Device* const d = device();
  return d && d->residence(data).kind == MemoryKind::kDevice;
}

Task* begin_messages(Device& device, GroupState& g, const char* call,
                     std::span<const Message> messages, std::optional<Device::Stream> stream,
                     bool blocking, Status& status) {
  std::vector<std::pair<std::size_t, std::size_t>> own;
  status = check_own_messages(call, messages, g.me, own);
  if (!status.ok() || messages.empty()) return nullptr;
  Core& core = *g.core;
  Task* handle = nullptr;
  try {
    bool captured = false;
    status = check_call(device, g, call, stream.has_value(), stream.value_or(nullptr), blocking,
                        captured);
    if (!status.ok()) return nullptr;
    std::shared_ptr<DeviceLanes> lanes = lanes_of(g);
    const MutexLock order(lanes->mutex);
    if (!lanes->messages) lanes->messages = std::make_unique<DeviceMessages>(device, g);
    if (!blocking || !stream) {
      const CoreLock lock(core.mutex);
      handle = new GpuTask(g, described(g, Collective::kSendRecv, {}, {}), 0);
      handle->record = kNoRecord;  // each message has its own
    }
    lanes->messages->add(messages, stream, captured, handle);
  } catch (const Error& e) {
    status = {Code::kTransport, fmt::format("{}: {}", call, e.what())};
    const CoreLock lock(core.mutex);
    if (handle) std::exchange(handle, nullptr)->release();
  }
  return handle;
}

void stop_devices(Core& core) noexcept {
  std::vector<std::shared_ptr<DeviceLanes>> all;
  {
    const CoreLock lock(core.mutex);
    for (const auto& [id, g] : core.groups.all)
      if (g && g->device) all.push_back(g->device);
  }
  // For the program, a send whose stream has continued is complete: deliver it.
  bool idle = true;
  for (const auto& lanes : all) {
    DeviceMessages* messages = nullptr;
    {
      const MutexLock order(lanes->mutex);
      messages = lanes->messages.get();  // lives as long as `lanes`
    }
    if (messages) messages->deliver();
    const MutexLock order(lanes->mutex);
    idle = idle && !(lanes->calls && !lanes->calls->idle()) &&
           !(lanes->graphs && !lanes->graphs->idle()) && !(messages && !messages->idle());
  }
  {
    CoreLock lock(core.mutex);
    if (!idle && !core.failures.all_over())
      core.failures.fail({Code::kAborted,
                          fmt::format("rank {} destroyed its World with tasks on device memory in "
                                      "flight",
                                      core.job->rank()),
                          core.job->rank()},
                         nullptr, lock);
  }
  for (const auto& lanes : all) {
    const MutexLock order(lanes->mutex);
    if (lanes->calls) lanes->calls->stop();
    if (lanes->graphs) lanes->graphs->stop();
    if (lanes->messages) lanes->messages->stop();
  }
  // The lanes are destroyed here, while everything that they use still exists.
  const CoreLock lock(core.mutex);
  for (const auto& [id, g] : core.groups.all)
    if (g && g->device) all.push_back(std::move(g->device));
}

}  // namespace weft
