// How messages ordered by streams end: when their streams continue, when they are over, and how
// they fail. Moves no bytes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coll/gpu/messages.h"

namespace weft {

void DeviceMessages::fail(MessageGroup& f, const std::string& why) {
  CoreLock lock(core_.mutex);
  const char* const verb = f.legs.size() > 1         ? "exchange"
                           : f.legs[0].message.sends ? "send"
                                                     : "recv";
  core_.failures.fail({Code::kTransport, fmt::format("{}: {}", verb, why),
                       group_.ranks[static_cast<std::size_t>(group_.me)]},
                      &group_, lock);
  f.status = group_.failure;
}

Status DeviceMessages::why_given_up() const {
  if (group_.broken) return group_.failure;
  return {Code::kAborted, "the World of this Communicator has ended"};
}

bool DeviceMessages::MessageGroup::over(const MessagePart& leg) const {
  if (!started || leg.op || !leg.copies.empty()) return false;
  if (!status.ok()) return true;
  if (leg.message.sends) return leg.ready == leg.slices;
  return leg.taken == leg.slices || (leg.gpu < 0 && !leg.own);  // landed at its destination
}

bool DeviceMessages::MessageGroup::passed(const MessagePart& leg) const {
  return over(leg) || (started && leg.message.sends && leg.ready == leg.slices);
}

bool DeviceMessages::MessageGroup::over_for_caller() const {
  return std::ranges::all_of(legs, [&](const MessagePart& leg) {
    return over(leg) || (leg.gpu_room && leg.bytes() <= kEagerBytes && passed(leg));
  });
}

std::size_t DeviceMessages::MessageGroup::held() const {
  std::size_t bytes = 0;
  for (const MessagePart& leg : legs)
    if (leg.message.sends && !leg.own && !over(leg)) bytes += leg.bytes();
  return bytes;
}

// If no stream waits: maps what receives need, and frees what is unused.
void DeviceMessages::map_wanted() {
  unless_streams_wait([&] {
    device_peers().trim(device_);
    device_peers().open_wanted(device_);
    PooledMemory::trim();
  });
}

// A stream continues once its sends are copied and its receives have landed.
bool DeviceMessages::open_gates() {
  std::size_t held = 0;
  bool any = false;
  for (const MessageGroup& f : flights_) held += f.open ? f.held() : 0;
  for (MessageGroup& f : flights_) {
    const bool ready =
        std::ranges::all_of(f.legs, [&](const MessagePart& leg) { return f.passed(leg); });
    const std::size_t own = f.open ? 0 : f.held();
    if (f.open || !ready || (own > 0 && held > kHeldBytes)) continue;
    held += own;
    const MutexLock lock(mutex_);
    f.open = true;
    --closed_;
    if (f.gate.done) gates_.open(f.gate, f.captured);
    any = any || f.gate.done;
  }
  return any;
}

// Removes the groups that are over, and finishes their handles.
void DeviceMessages::let_go() {
  std::list<MessageGroup> over;
  {
    const MutexLock lock(mutex_);
    for (auto it = flights_.begin(); it != flights_.end();) {
      const auto f = it++;
      if (f->open &&
          std::ranges::all_of(f->legs, [&](const MessagePart& leg) { return f->over(leg); }))
        over.splice(over.end(), flights_, f);
    }
    under_way_ = flights_.size();
  }
  const bool any = std::ranges::any_of(
      flights_, [](const MessageGroup& f) { return f.handle && f.over_for_caller(); });
  if (over.empty() && !any) return;
  changed_.notify_all();
  CoreLock lock(core_.mutex);
  for (MessageGroup& f : flights_)
    if (f.handle && f.over_for_caller())
      core_.tasks.finish(std::exchange(f.handle, nullptr), f.status);
  for (MessageGroup& f : over)
    if (f.handle) core_.tasks.finish(f.handle, f.status);
  core_.waiting.lane_task_over();
  core_.run_callbacks(lock);
}

}  // namespace weft
