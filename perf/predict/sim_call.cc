// Reads the flags of `weft sim`. Runs nothing.
#include "perf/predict/sim_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "topo/base/status.h"

namespace weft {
namespace {

// Parses "1:0.5" or "1:0.5@300": rail or host 1 has half its speed, from 300 us on.
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

// Parses "3:1@500": the link of host 3 on rail 1 goes down at 500 us.
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
  bool from_the_start = false;  // whether a rail is slow from the start
  for (const std::string& text : flags.slow_rails) {
    const Slow slow = slow_of("--slow-rail", text, fabric.rail_scale.size());
    if (slow.at_us > 0) {
      fabric.slowdowns.push_back({slow.at_us, slow.which, slow.factor});
    } else {
      fabric.rail_scale[static_cast<std::size_t>(slow.which)] *= slow.factor;
      from_the_start = true;
    }
  }
  weigh_rails(job);
  for (const std::string& text : flags.slow_hosts) {
    const Slow slow = slow_of("--slow-host", text, job.shape.hosts.size());
    fabric.host_scale.resize(job.shape.hosts.size(), 1);
    fabric.host_scale[static_cast<std::size_t>(slow.which)] = slow.factor;
  }
  for (const std::string& text : flags.cuts) fabric.failures.push_back(cut_of(text));

  set_model(job, from_the_start || !job.shape.rail_weight.empty() ? job.rails : flags.rails);
  if (flags.unknown_leaves) job.shape.leaf.clear();
  if (flags.equal_shares) {  // the bound still accounts for them
    job.shape.slow_ports.clear();
    job.shape.rail_weight.clear();
  }
  return job;
}

}  // namespace weft
