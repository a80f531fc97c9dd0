// Reads the flags of `weft sim`. Runs nothing.
#include "perf/predict/sim_call.h"

#include <fmt/format.h>

#include <cstdio>

#include "perf/cli/bytes.h"
#include "perf/predict/bound.h"

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

// Gb/s of a core as us per byte; 0: it costs nothing.
double us_per_byte(double GBps) { return GBps > 0 ? 1e-3 / GBps : 0; }

// What cores cost.
void set_cores(SimFabricOptions& fabric, const SimFlags& flags) {
  const bool stated = flags.cpu_us >= 0;
  const auto rate = [&](double given, double otherwise) {
    return us_per_byte(given >= 0 ? given : stated ? 0 : otherwise);
  };
  fabric.post_us = fabric.complete_us = stated ? flags.cpu_us : kSimCoreUs;
  fabric.reduce_us_per_byte = rate(flags.reduce_GBps, kSimReduceGBps);
  fabric.copy_us_per_byte = rate(flags.copy_GBps, kSimCopyGBps);
  fabric.rail_copies = flags.wire == "tcp";
}

}  // namespace

SimulatedCall call_of(const SimFlags& flags) {
  SimulatedCall job;
  job.collective = collective_of(flags);
  job.type = type_of(flags);
  job.whole = flags.whole;
  if (flags.reorder && flags.delay_us <= 0)
    throw Error("--reorder: messages overtake each other by their delays; give --delay-us too");
  job.shape = shape_of(flags, 0);

  const bool blocks = by_blocks(job.collective);
  const std::size_t unit = size_of(job.type) * (blocks ? static_cast<std::size_t>(flags.ranks) : 1);
  const std::uint64_t bytes =
      job.collective == Collective::kBarrier ? 0 : parse_bytes("--bytes", flags.bytes);
  job.count = bytes / unit;
  job.bytes = job.count * unit;
  if (bytes > 0 && job.count == 0)
    throw Error(fmt::format("--bytes {}: less than one {} for each block; give at least {}",
                            flags.bytes, name(job.type), unit));

  const int rails = flags.rails > 0 ? flags.rails : static_cast<int>(job.shape.hosts[0].size());
  SimFabricOptions& fabric = job.fabric;
  fabric = fabric_of(job.shape, rails);
  fabric.carry_data = false;
  fabric.rail = rail_of(flags);
  fabric.spine = {flags.spine_us, flags.spine_gbps > 0 ? flags.spine_gbps : fabric.rail.gbps};
  fabric.host = host_link_of(flags);
  fabric.payload_share = payload_share_of(flags);
  set_cores(fabric, flags);
  fabric.seed = flags.seed;
  fabric.skew_us = flags.skew_us;
  if (!flags.timeline.empty()) fabric.watch = 0;
  fabric.delay_us_max = flags.delay_us;
  fabric.reorder = flags.reorder;
  fabric.rail_scale.assign(static_cast<std::size_t>(rails), 1.0);
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
  for (const std::string& text : flags.slow_hosts) {
    const Slow slow = slow_of("--slow-host", text, job.shape.hosts.size());
    fabric.host_scale.resize(job.shape.hosts.size(), 1);
    fabric.host_scale[static_cast<std::size_t>(slow.which)] = slow.factor;
  }
  for (const std::string& text : flags.cuts) fabric.failures.push_back(cut_of(text));

  job.model = model_of(fabric);
  // A simulated rank sends through a port of its own: a scatter takes what a gather takes.
  const Collective as =
      job.collective == Collective::kScatter ? Collective::kGather : job.collective;
  CostModel own_ports = job.model;
  if (!from_the_start) own_ports.rails_per_host = flags.rails;  // 0: a host's ranks
  job.bound = bound_of(as, job.shape, job.bytes, own_ports);
  return job;
}

}  // namespace weft
