// Measures ping-pongs between partners, and sets the cost model from their medians. This file does
// not depend on which transport carries the messages.
#include "coll/runtime/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "coll/runtime/core.h"
#include "coll/runtime/internals.h"
#include "coll/tasks/message_task.h"

namespace weft {
namespace {

constexpr int kShort = 9, kLong = 3;            // round trips
constexpr std::size_t kLongBytes = 256u << 10;  // measures the rate, and is quick on a slow link
constexpr double kSocketWork = 0.4;             // share of a short message's time at either end

using Clock = std::chrono::steady_clock;

Status transfer(Core& core, GroupState& world, bool send, Rank peer, void* data,
                std::size_t bytes) {
  Task* task;
  {
    const CoreLock lock(core.mutex);
    task = MessageTask::begin(world, send, peer, data, bytes, DType::kUInt8);
  }
  return core.waiting.wait(task);
}

// Half a round trip in microseconds, the median of `times`.
Status ping_pong(Core& core, GroupState& world, Rank peer, std::byte* data, std::size_t bytes,
                 int times, double& half_us) {
  std::vector<double> all;
  const bool first = core.job->rank() < peer;
  for (int i = 0; i <= times; ++i) {  // one more: the first opens the connection
    const auto start = Clock::now();
    for (const bool send : {first, !first})
      if (Status s = transfer(core, world, send, peer, data, bytes); !s.ok()) return s;
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (i > 0) all.push_back(took.count() / 2);
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  half_us = all[static_cast<std::size_t>(times / 2)];
  return {};
}

// Numbers 2k and 2k + 1 are partners; with an odd n, the last number has no partner.
int partner(int i, int n) { return (i ^ 1) < n ? i ^ 1 : -1; }

double median_of(std::vector<double> v, double otherwise) {
  std::erase(v, 0.0);
  if (v.empty()) return otherwise;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

double declared_rail_gbps(double asked) {
  if (asked > 0) return asked;
  const char* text = std::getenv("WEFT_RAIL_GBPS");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value > 0) || value > 1e6)
    throw Error(
        fmt::format("WEFT_RAIL_GBPS={}: not a rate; set the Gb/s of one rail, as in 400", text));
  return value;
}

Status calibrate(Core& core, GroupState& world) {
  const Topology& t = *core.topology;
  const Rank me = core.job->rank();
  const double declared = declared_rail_gbps(core.options.rail_gbps);
  std::vector<std::byte> data(kLongBytes);

  // Latency (us) and us per byte within the host, the same two figures of a rail, and the
  // oversubscription. 0: not measured by this rank.
  std::array<double, 5> mine{};
  mine[4] = core.oversubscription;
  const auto measure = [&](Rank peer, double* into, bool rate_known) -> Status {
    double short_us = 0, long_us = 0;
    if (Status s = ping_pong(core, world, peer, data.data(), 8, kShort, short_us); !s.ok())
      return s;
    into[0] = short_us;
    if (rate_known) return {};
    if (Status s = ping_pong(core, world, peer, data.data(), kLongBytes, kLong, long_us); !s.ok())
      return s;
    into[1] = std::max(long_us - short_us, 1e-3) / static_cast<double>(kLongBytes);
    return {};
  };
  const auto& locals = t.ranks_of(t.host(me));
  if (const int p = partner(t.local(me), static_cast<int>(locals.size())); p >= 0)
    if (Status s = measure(locals[static_cast<std::size_t>(p)], &mine[0], false); !s.ok()) return s;
  if (const int h = partner(t.host(me), t.nhosts()); h >= 0) {
    const auto& there = t.ranks_of(h);
    const auto local = static_cast<std::size_t>(t.local(me));
    if (local < there.size())
      if (Status s = measure(there[local], &mine[2], declared > 0); !s.ok()) return s;
  }

  // Rank 0 computes the medians, so that only it receives the figures of all ranks.
  std::array<double, 5> middle{};  // 0: measured by no rank
  const auto bytes_of = [](const std::array<double, 5>& numbers) {
    return std::string(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
  };
  core.waiting.settle_rails(*core.job, [&] {  // no other thread polls during this wait
    std::array<std::vector<double>, 5> all;
    for (const std::string& text : core.job->gather(bytes_of(mine))) {
      std::array<double, 5> theirs{};
      if (text.size() == sizeof theirs) std::memcpy(theirs.data(), text.data(), sizeof theirs);
      for (std::size_t i = 0; i < all.size(); ++i) all[i].push_back(theirs[i]);
    }
    std::vector<std::string> for_each;
    if (me == 0) {
      for (std::size_t i = 0; i < all.size(); ++i) middle[i] = median_of(all[i], 0);
      for_each.assign(static_cast<std::size_t>(t.nranks()), bytes_of(middle));
    }
    const std::string text = core.job->scatter(for_each);
    if (text.size() == sizeof middle) std::memcpy(middle.data(), text.data(), sizeof middle);
  });
  ++core.selection;
  Machine& m = core.machine;
  const auto or_else = [](double measured, double otherwise) {
    return measured > 0 ? measured : otherwise;
  };
  const auto rate_of = [&](double us_per_byte, double otherwise) {
    return 8e-3 / or_else(us_per_byte, 8e-3 / otherwise);
  };
  m.name = "measured";
  m.host = {or_else(middle[0], m.host.us), rate_of(middle[1], m.host.gbps)};
  m.rail = {or_else(middle[2], m.rail.us),
            declared > 0 ? declared * kTcpPayloadShare : rate_of(middle[3], m.rail.gbps)};
  // Over sockets most of a short message's time is CPU work at both ends, which messages to several
  // peers cannot overlap.
  const bool sockets = t.place(0).rails.empty() || !t.place(0).rails.front().rdma;
  if (sockets) {
    m.rail_core_us = kSocketWork * m.rail.us;
    m.rail.us *= 1 - 2 * kSocketWork;
  }
  CostModel& c = core.costs = costs_of(m);
  c.sockets = sockets;
  if (sockets) c.oversubscription = or_else(middle[4], 1);
  c.rails_per_host = t.nrails();
  return {};
}

CostModel Internals::costs(World& world) { return world.core_->costs; }

Machine Internals::machine(World& world) { return world.core_->machine; }

}  // namespace weft
