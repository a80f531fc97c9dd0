// Reads the flags of `weft sim`. Runs nothing.
#include "perf/predict/sim_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "topo/base/status.h"

namespace weft {
namespace {

// "1:0.5" or "1:0.5@300": rail or host 1 has half its speed, from 300 us on.
struct Slow {
  int which = -1;
  double factor = 0, at_us = 0;
};

Slow slow_of(const char* flag, const std::string& text, std::size_t count) {
  Slow slow;
  int end = 0, end_at = 0;
  const int read = std::sscanf(text.c_str(), "%d:%lf%n@%lf%n", &slow.which, &slow.factor, &end,
                               &slow.at_us, &end_at);
  const std::size_t all =
      read == 3 ? static_cast<std::size_t>(end_at) : static_cast<std::size_t>(end);
  if (read < 2 || all != text.size() || slow.factor <= 0 || slow.factor > 1 || slow.which < 0 ||
      static_cast<std::size_t>(slow.which) >= count || slow.at_us < 0)
    throw Error(
        fmt::format("{} {}: give NUMBER:FACTOR, a number from 0 to {} and a factor above 0 and at "
                    "most 1, as in 1:0.5, or 1:0.5@300 from 300 us on",
                    flag, text, count - 1));
  return slow;
}

// "3:1=0.5": the port of host 3 on rail 1 has half its rate; 0: it is dead.
SimSlowPort slow_port_of(const std::string& text, const SimulatedCall& job) {
  SimSlowPort port;
  int end = 0;
  const int read =
      std::sscanf(text.c_str(), "%d:%d=%lf%n", &port.host, &port.rail, &port.factor, &end);
  const auto hosts = static_cast<int>(job.shape.hosts.size());
  if (read != 3 || static_cast<std::size_t>(end) != text.size() || port.host < 0 ||
      port.host >= hosts || port.rail < 0 || port.rail >= job.rails || !(port.factor >= 0) ||
      port.factor > 1)
    throw Error(fmt::format(
        "--slow-port {}: give HOST:RAIL=FRACTION, a host from 0 to {}, a rail from 0 to "
        "{} and a fraction of its rate from 0 (dead) to 1, as in 1:0=0.5",
        text, hosts - 1, job.rails - 1));
  return port;
}

// The ports as the schedules know them: those of the ranks that use them.
void add_slow_ports(SimulatedCall& job, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const SimSlowPort port = slow_port_of(text, job);
    job.fabric.slow_ports.push_back(port);
    const auto& ranks = job.shape.hosts[static_cast<std::size_t>(port.host)];
    for (std::size_t l = 0; l < ranks.size(); ++l)
      if (job.fabric.rail_of_rank[static_cast<std::size_t>(ranks[l])] == port.rail)
        job.shape.slow_ports.push_back({port.host, static_cast<int>(l), port.factor});
  }
  std::ranges::sort(job.shape.slow_ports, {}, [](const SlowPort& p) {
    return std::pair{p.host, p.local};
  });
  const auto twice = std::ranges::adjacent_find(
      job.shape.slow_ports,
      [](const SlowPort& a, const SlowPort& b) { return a.host == b.host && a.local == b.local; });
  if (twice != job.shape.slow_ports.end())
    throw Error(
        fmt::format("--slow-port: host {} has two fractions for one port; give one", twice->host));
  for (const SlowPort& p : job.shape.slow_ports) {
    const auto dead = std::ranges::count_if(
        job.shape.slow_ports, [&](const SlowPort& o) { return o.host == p.host && o.rate == 0; });
    if (dead == std::ssize(job.shape.hosts[static_cast<std::size_t>(p.host)]))
      throw Error(fmt::format(
          "--slow-port: all ports of host {} are dead, so nothing can reach it; leave one",
          p.host));
  }
}

// "3:1@500": the link of host 3 on rail 1 goes down at 500 us.
SimFailure cut_of(const std::string& text) {
  SimFailure cut;
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%d:%d@%lf%n", &cut.host, &cut.rail, &cut.at_us, &end);
  if (read != 3 || static_cast<std::size_t>(end) != text.size() || cut.host < 0 || cut.rail < 0 ||
      cut.at_us < 0)
    throw Error(fmt::format("--cut {}: give HOST:RAIL@US, as in 3:1@500", text));
  return cut;
}

}  // namespace

SimulatedCall call_of(const SimFlags& flags) {
  if (flags.reorder && flags.delay_us <= 0)
    throw Error("--reorder: messages overtake each other by their delays; give --delay-us too");
  SimulatedCall job;
  static_cast<ModelCall&>(job) = call_of(flags, 0);
  job.whole = flags.whole;
  SimFabricOptions& fabric = job.fabric;
  fabric.seed = flags.seed;
  fabric.skew_us = flags.skew_us;
  if (!flags.timeline.empty()) fabric.watch = 0;
  fabric.delay_us_max = flags.delay_us;
  fabric.reorder = flags.reorder;
  bool from_the_start = false;  // a rail is slow
  for (const std::string& text : flags.slow_rails) {
    const Slow slow = slow_of("--slow-rail", text, fabric.rail_scale.size());
    if (slow.at_us > 0) {
      fabric.slowdowns.push_back({slow.at_us, slow.which, slow.factor});
    } else {
      fabric.rail_scale[static_cast<std::size_t>(slow.which)] = slow.factor;
      from_the_start = true;
    }
  }
  if (from_the_start && !flags.equal_shares)
    for (std::size_t l = 0; l < job.shape.hosts[0].size(); ++l)
      job.shape.rail_weight.push_back(fabric.rail_scale[l % fabric.rail_scale.size()]);
  add_slow_ports(job, flags.slow_ports);
  for (const std::string& text : flags.slow_hosts) {
    const Slow slow = slow_of("--slow-host", text, job.shape.hosts.size());
    fabric.host_scale.resize(job.shape.hosts.size(), 1);
    fabric.host_scale[static_cast<std::size_t>(slow.which)] = slow.factor;
  }
  for (const std::string& text : flags.cuts) fabric.failures.push_back(cut_of(text));

  set_model(job, from_the_start ? job.rails : flags.rails);
  if (flags.equal_shares) job.shape.slow_ports.clear();  // the bound knows them all the same
  return job;
}

}  // namespace weft
