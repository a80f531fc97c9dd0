// Moves messages ordered by streams: copies and posts their slices, and takes those that landed.
// This file does not depend on collectives.
#include "coll/gpu/messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "coll/gpu/kernels.h"
#include "topo/base/thread.h"
#include "transport/gpu/streams.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// The companion that numbers the messages of graphs; distinct from DeviceLane::Kind.
constexpr std::uint32_t kReplays = 3;

}  // namespace

DeviceMessages::DeviceMessages(Device& device, GroupState& group)
    : device_(device),
      group_(group),
      core_(*group.core),
      gates_(device, waiting_streams_of(&core_)) {
  {
    const CoreLock lock(core_.mutex);
    core_.waiting.start_calling();
    replays_ = core_.groups.make_companion(group, kReplays, group.ranks);
  }
  try {
    thread_ = start_thread("the thread of a GPU's messages", [this] { serve(); });
  } catch (...) {
    const CoreLock lock(core_.mutex);
    core_.groups.forget(*replays_);
    throw;
  }
}

DeviceMessages::~DeviceMessages() {
  {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() WEFT_REQUIRES(mutex_) { return all_over() || stop_; });
  }
  stop();
  const CoreLock lock(core_.mutex);
  core_.groups.forget(*replays_);
}

void DeviceMessages::stop() noexcept {
  {
    const MutexLock lock(mutex_);
    if (!stop_) leave_at_ = Clock::now() + kLeave;
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool DeviceMessages::idle() const {
  const MutexLock lock(mutex_);
  return all_over();
}

void DeviceMessages::deliver() {
  MutexLock lock(mutex_);
  changed_.wait(lock,
                [&]() WEFT_REQUIRES(mutex_) { return closed_ > 0 || under_way_ == 0 || stop_; });
}

// ---- calls ---------------------------------------------------------------------------------

DeviceMessages::MessageGroup DeviceMessages::flight_of(std::span<const Message> messages) const {
  MessageGroup f;
  std::vector<std::size_t> sent, received;  // by this rank to and from itself
  for (const Message& m : messages) {
    const bool own = m.peer == group_.me;
    if (own) (m.sends ? sent : received).push_back(f.legs.size());
    const Residence where = m.count ? device_.residence(m.data) : Residence{};
    f.legs.push_back(
        {.message = m, .gpu = where.kind == MemoryKind::kDevice ? where.gpu : -1, .own = own});
  }
  for (std::size_t i = 0; i < received.size(); ++i)
    f.legs[received[i]].source = &f.legs[sent.at(i)];
  return f;
}

// Takes pinned memory before the stream waits, since a GPU may make an allocation wait for the
// stream. Calls far ahead of their stream take it when the stream arrives, to hold less at once.
void DeviceMessages::take_rooms(MessageGroup& f, bool ordered) {
  {
    const MutexLock lock(mutex_);
    std::size_t ahead = 0;
    for (const MessageGroup& other : waiting_)
      for (const MessagePart& leg : other.legs) ahead += leg.room.size();
    if (ahead > kHeldBytes) return;
  }
  for (MessagePart& leg : f.legs) {
    const std::size_t bytes = leg.bytes();
    if (bytes == 0 || (!leg.message.sends && (leg.own || leg.gpu < 0))) continue;
    take_gpu_room(leg, ordered);
    leg.room = PooledMemory(device_, PooledMemory::kPinned, bytes, &waiting_streams_of(&core_));
  }
}

void DeviceMessages::enter(MessageGroup& f) {
  for (MessagePart& leg : f.legs) {
    if (leg.own) continue;
    const Message& m = leg.message;
    leg.op = new MessageTask(f.captured ? *replays_ : group_, m.sends, m.peer, m.count, m.type);
    if (m.sends || leg.gpu < 0) continue;
    leg.op->tell_slices(leg.landed);
    leg.op->take_offers();
  }
}

void DeviceMessages::add(std::span<const Message> messages, std::optional<Device::Stream> stream,
                         bool captured, Task* handle) {
  map_wanted();
  if (stream) prepare_gpu(device_, device_.gpu_of(*stream));
  MessageGroup f = flight_of(messages);
  take_rooms(f, stream.has_value());  // captured messages: fills the pool for replays
  {
    const MutexLock lock(mutex_);
    if (stop_) throw Error("the World of this Communicator has ended");
    if (stream) f.gate = gates_.take();
  }
  if (stream) gates_.put(f.gate, *stream, captured);
  f.handle = handle;
  if (!captured) {
    const CoreLock lock(core_.mutex);
    enter(f);
  }
  {
    const MutexLock lock(mutex_);
    if (captured) {
      captured_.push_back({{messages.begin(), messages.end()}, f.gate});
    } else {
      ++closed_;
      waiting_.push_back(std::move(f));
    }
  }
  changed_.notify_all();
}

// ---- the thread ----------------------------------------------------------------------------

void DeviceMessages::serve() {
  lane_thread = true;
  device_.enter_thread();
  Backoff patience;
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&]() WEFT_REQUIRES(mutex_) {
      return stop_ || !waiting_.empty() || !flights_.empty() || !captured_.empty();
    });
    bool moved = take_arrivals();
    if (flights_.empty() && stop_) return;
    lock.unlock();
    if (!flights_.empty())
      moved = turn() || moved;
    else
      look_for_failure();
    if (moved)
      patience.reset();
    else
      patience.pause();
    lock.lock();
  }
}

// Takes the groups whose streams have arrived, or all groups if waiting is pointless.
bool DeviceMessages::take_arrivals() {
  const std::size_t before = flights_.size();
  const bool all = given_up();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto f = it++;
    if (!f->gate.arrived || f->gate.arrived->exchange(0, std::memory_order_acquire) != 0 || all)
      flights_.splice(flights_.end(), waiting_, f);
  }
  for (const Captured& c : captured_) {
    if (c.gate.arrived->exchange(0, std::memory_order_acquire) == 0) continue;
    flights_.push_back(flight_of(c.messages));
    flights_.back().gate = c.gate;
    flights_.back().captured = true;
    ++closed_;
  }
  under_way_ = flights_.size();
  return under_way_ != before;
}

bool DeviceMessages::turn() {
  bool moved = false;
  for (MessageGroup& f : flights_) {
    if (!std::exchange(f.started, true)) start(f);
    moved = look_at_device(f) || moved;
  }
  look_for_failure();
  {
    CoreLock lock(core_.mutex);
    if (!group_.broken) moved = core_.tasks.progress() || moved;
    for (MessageGroup& f : flights_) moved = look_at_transports(f, looks_ % 64 == 0) || moved;
    core_.run_callbacks(lock);
  }
  if (open_gates()) map_wanted();
  let_go();
  return moved;
}

// The stream has arrived.
void DeviceMessages::start(MessageGroup& f) {
  {
    const CoreLock lock(core_.mutex);
    if (given_up())
      f.status = why_given_up();
    else if (f.captured)
      enter(f);
  }
  if (!f.status.ok()) return;
  try {
    for (MessagePart& leg : f.legs) {
      if (leg.op) leg.slice_bytes = leg.op->slice_bytes();
      leg.slices = slices_of(leg.bytes(), leg.slice_bytes);
      if (leg.message.sends) {
        if (!take_aside(leg, f.gate.done)) take_down(leg);
      } else if (!leg.own) {
        if (leg.gpu >= 0 && !leg.room)
          leg.room = PooledMemory(device_, PooledMemory::kPinned, leg.bytes());
        leg.ready = leg.slices;
      }
    }
  } catch (const std::exception& e) {
    fail(f, e.what());
  }
}

void DeviceMessages::take_down(MessagePart& leg) {
  const std::size_t bytes = leg.bytes();
  if (bytes && !leg.room) leg.room = PooledMemory(device_, PooledMemory::kPinned, bytes);
  auto* const from = leg.gpu_room ? leg.gpu_room.get() : static_cast<std::byte*>(leg.message.data);
  if (leg.gpu < 0) {
    if (bytes) std::memcpy(leg.room.get(), from, bytes);
    leg.ready = leg.slices;
    return;
  }
  for (std::uint32_t k = 0; k < leg.slices; ++k) copy(leg, k, 0, leg.room.get(), from);
}

void DeviceMessages::take_up(MessagePart& leg, std::uint32_t slice) {
  const std::byte* const from = (leg.source ? leg.source->room : leg.room).get();
  auto* const to = static_cast<std::byte*>(leg.message.data);
  if (leg.gpu >= 0) return copy(leg, slice, 1, to, from);
  const std::size_t at = slice * leg.slice_bytes, bytes = leg.bytes();
  if (bytes) std::memcpy(to + at, from + at, std::min(bytes - at, leg.slice_bytes));
  ++leg.taken;
}

// Queues the copy of a slice on weft's own stream `which`: 0 for sends, 1 for receives.
void DeviceMessages::copy(MessagePart& leg, std::uint32_t slice, int which, std::byte* to,
                          const std::byte* from) {
  const std::size_t at = slice * leg.slice_bytes;
  const Device::Stream s = own_stream(device_, leg.gpu, which);
  device_.copy(to + at, from + at, std::min(leg.bytes() - at, leg.slice_bytes), leg.gpu, s);
  leg.copies.push_back(device_.make_event(leg.gpu));
  device_.record(leg.copies.back(), s);
}

// Whether any copy of the leg ended. If the GPU does not respond at the end of the World, copies
// count as ended, and their memory is abandoned.
bool DeviceMessages::end_copies(MessagePart& leg) {
  bool any = false;
  for (; !leg.copies.empty(); any = true) {
    if (!device_.reached(leg.copies.front())) {
      if (!stop_ || Clock::now() < leave_at_) break;
      (leg.source ? leg.source->room : leg.room).abandon();
      leg.gpu_room.abandon();
      leg.mapped = false;
    }
    device_.free_event(leg.copies.front());
    leg.copies.pop_front();
    ++(leg.message.sends ? leg.ready : leg.taken);
  }
  if (leg.copies.empty() && std::exchange(leg.mapped, false))
    device_peers().release(*leg.address, leg.gpu);
  return any;
}

bool DeviceMessages::look_at_device(MessageGroup& f) {
  bool moved = false;
  for (MessagePart& leg : f.legs) {
    try {
      moved = end_copies(leg) || moved;
      if (!f.status.ok()) continue;
      if (leg.message.sends && std::exchange(leg.declined, false)) take_down(leg);
      if (leg.offered && !leg.message.sends && !leg.fetching) fetch(leg, f.captured);
      if (leg.source)
        for (; leg.ready < leg.source->ready; ++leg.ready) leg.arrived.push_back(leg.ready);
      moved = moved || !leg.arrived.empty();
      for (const std::uint32_t slice : std::exchange(leg.arrived, {})) take_up(leg, slice);
    } catch (const std::exception& e) {
      fail(f, e.what());
    }
  }
  return moved;
}

bool DeviceMessages::look_at_transports(MessageGroup& f, bool clock) {
  bool moved = false;
  for (MessagePart& leg : f.legs) {
    if (given_up() && f.status.ok()) f.status = why_given_up();
    MessageTask* const op = leg.op;
    if (!op) continue;
    if (!f.status.ok() && !op->under_way()) {
      core_.tasks.finish(op, f.status);
    } else if (f.status.ok() && look_at_offer(leg)) {
      moved = true;
    } else if (f.status.ok() && !(leg.message.sends && leg.offered) &&
               op->slices_ready() < leg.ready) {
      op->let_go(leg.room ? leg.room.get() : leg.message.data, leg.ready);
      moved = true;
    }
    if (clock && op->under_way() && !op->over) core_.waiting.check_deadline(op, Clock::now());
    moved = moved || !leg.landed.empty();
    leg.arrived.insert(leg.arrived.end(), leg.landed.begin(), leg.landed.end());
    leg.landed.clear();
    if (!op->over) continue;
    moved = true;
    if (f.status.ok()) f.status = op->status;
    // The receiver's GPU may still read it.
    if (leg.offered && op->under_way() && !op->status.ok()) leg.gpu_room.abandon();
    std::exchange(leg.op, nullptr)->release();
    if (!leg.message.sends || !leg.copies.empty()) continue;
    leg.room.give_back();
    leg.gpu_room.give_back();
  }
  return moved;
}

}  // namespace weft
