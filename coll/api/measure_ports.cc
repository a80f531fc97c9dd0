// World::measure_slow_ports(): a short exchange between the ports of each rail.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "coll/runtime/core.h"
#include "coll/runtime/selector.h"
#include "coll/select/slow_ports.h"
#include "coll/tasks/message_task.h"
#include "topo/base/log.h"

namespace weft {
namespace {

// Each port exchanges with this many other ports in turn. The best rate counts, so that a slow
// partner does not make a port look slow.
constexpr int kPartners = 3;
constexpr int kPasses = 4;  // at most, until two passes agree
constexpr double kExchangeUs = 20'000;
constexpr std::size_t kLeastBytes = 256u << 10, kMostBytes = 16u << 20;  // per message

// For each host with a rank on the rail, the first such rank.
std::vector<Rank> ranks_on(const Topology& t, int rail) {
  std::vector<Rank> ranks;
  for (int h = 0; h < t.nhosts(); ++h) {
    const auto& here = t.ranks_of(h);
    const auto first = std::ranges::find(here, rail, [&](Rank r) { return t.rail(r); });
    if (first != here.end()) ranks.push_back(*first);
  }
  return ranks;
}

// The rate by which shape_ports() weights the rail; 1 if rates of rails are not known.
double nominal(const Topology& t, const std::vector<std::vector<Rank>>& rails, int rail) {
  double of_rail = 1;
  for (std::size_t r = 0; r < rails.size(); ++r) {
    if (rails[r].empty()) continue;
    const auto& nics = t.place(rails[r].front()).rails;
    if (r >= nics.size() || nics[r].rate_gbps <= 0) return 1;
    if (static_cast<int>(r) == rail) of_rail = nics[r].rate_gbps;
  }
  return of_rail;
}

// Bytes of one message: with short messages, a rank's waits for a core would make its port look
// slow.
std::size_t bytes_of(const Core& core) {
  const double us = kExchangeUs * core.oversubscription;
  return std::clamp(static_cast<std::size_t>(core.machine.rail.gbps / 8e-3 * us), kLeastBytes,
                    kMostBytes);
}

// The best rate so far, in bytes per us, by host, rail and direction; 0: none.
class Rates {
 public:
  explicit Rates(const Topology& t)
      : rails_(t.nrails()), all_(2 * static_cast<std::size_t>(t.nhosts() * t.nrails()), 0.0) {}
  void saw(int host, int rail, bool sends, double rate) {
    double& of = all_[index(host, rail, sends)];
    of = std::max(of, rate);
  }
  // The rate of the port's slower direction.
  double of(int host, int rail) const {
    return std::min(all_[index(host, rail, false)], all_[index(host, rail, true)]);
  }
  // Merges the rates of all ranks.
  Status share(Communicator& ranks) {
    const std::vector<double> mine = all_;
    return ranks.all_reduce(mine.data(), all_.data(), mine.size(), DType::kFloat64, RedOp::kMax);
  }

 private:
  std::size_t index(int host, int rail, bool sends) const {
    return 2 * static_cast<std::size_t>(host * rails_ + rail) + (sends ? 1 : 0);
  }
  int rails_;
  std::vector<double> all_;
};

// Sends a message to one rank of the rail and receives one from another, at `rate`.
Status exchange(Core& core, GroupState& world, Rank to, Rank from, std::vector<std::byte>& out,
                std::vector<std::byte>& in, double& rate) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Task *sends, *receives;
  {
    const CoreLock lock(core.mutex);
    receives = MessageTask::begin(world, false, from, in.data(), in.size(), DType::kUInt8, true);
    sends = MessageTask::begin(world, true, to, out.data(), out.size(), DType::kUInt8, true);
  }
  const Status came = core.waiting.wait(receives);
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  const Status went = core.waiting.wait(sends);
  rate = static_cast<double>(in.size()) / std::max(took.count(), 1e-3);
  return came.ok() ? went : came;
}

}  // namespace

std::string World::measure_slow_ports() {
  Core& core = *core_;
  const Topology& t = *core.topology;
  Communicator all = world(), quiet = all.internal();
  std::vector<std::vector<Rank>> rails;
  for (int r = 0; r < t.nrails(); ++r) rails.push_back(ranks_on(t, r));
  std::vector<PortRate> before;
  {
    const CoreLock lock(core.mutex);
    before = core.port_sets[core.port_set];
  }
  std::vector<std::byte> out(bytes_of(core)), in(out.size());
  Rates rates(t);
  const auto measure = [&](int rail, int distance) {
    const std::vector<Rank>& ranks = rails[static_cast<std::size_t>(rail)];
    const auto n = static_cast<std::ptrdiff_t>(ranks.size());
    const auto i = std::ranges::find(ranks, rank()) - ranks.begin();
    if (distance >= n) return;
    quiet.barrier().check();
    if (i == n) return;
    const auto rank_at = [&](std::ptrdiff_t k) { return ranks[static_cast<std::size_t>(k % n)]; };
    const Rank from = rank_at(i + n - distance);
    double rate = 0;
    exchange(core, *all.state_, rank_at(i + distance), from, out, in, rate).check();
    const CoreLock lock(core.mutex);
    if (core.links.rails && !core.links.rails->up(from, rail)) return;  // another rail carried it
    rates.saw(t.host(rank()), rail, false, rate);
    rates.saw(t.host(from), rail, true, rate);
  };
  std::vector<PortRate> found = before, last;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (int distance = 1; distance <= kPartners; ++distance)
      for (int rail = 0; rail < t.nrails(); ++rail) measure(rail, distance);
    rates.share(quiet).check();
    std::vector<PortRate> measured;
    for (int rail = 0; rail < t.nrails(); ++rail)
      for (const Rank r : rails[static_cast<std::size_t>(rail)])
        if (rails[static_cast<std::size_t>(rail)].size() > 1)
          measured.push_back(
              {t.host(r), rail, rates.of(t.host(r), rail) / nominal(t, rails, rail)});
    const std::vector<PortRate> now = slow_ports_of(measured, before);
    if (now == (pass == 0 ? before : last)) {
      found = now;
      break;
    }
    last = now;
  }
  const std::string text = text_of(found, port_names(t));
  if (found == before) return text;
  if (rank() == 0)
    log().warn("weft: slow ports, as measured: {}", text.empty() ? "none any more" : text);
  set_slow_ports(text);
  return text;
}

}  // namespace weft
