// The presets, with the sources of their numbers. Does not measure anything.
#include "coll/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "topo/base/status.h"

namespace weft {
namespace {

constexpr double kGB = 1e9;

// Rails of 100 Gb/s and 5 us, and 200 Gb/s and 0.5 us between the ranks of a host, are assumed: a
// common server. Its cores are measured, by weft_bench_core on a Xeon (docs/performance.md): they
// reduce 4.5 GB/s and copy 5 GB/s from memory. 0.2 us a message is assumed.
Machine cpu() {
  Machine m;
  m.name = "cpu";
  m.host = {0.5, 200};
  m.rail = {5, 100};
  m.spine = {8, 0};
  m.payload_share = kRocePayloadShare;
  m.core_us = 0.2;
  m.reduce_GBps = 4.5;
  m.copy_GBps = 5;
  return m;
}

// A GPU per rank, with a rail of its own. The GPUs themselves reduce and copy, at 1000 GB/s and
// more, which costs no core time. Latencies and 0.3 us of a core are assumed, as in
// docs/performance.md.
Machine with_gpus(const char* name) {
  Machine m;
  m.name = name;
  m.host.us = 1;
  m.rail.us = 5;
  m.spine.us = 8;
  m.payload_share = kRocePayloadShare;
  m.core_us = 0.3;
  return m;
}

// DGX H100, by its data sheet: a GPU has 900 GB/s of NVLink, both directions together, a 400 Gb/s
// ConnectX-7, 80 GB, and 989 TFLOP/s dense in bf16 (1979 sparse).
Machine h100() {
  Machine m = with_gpus("h100");
  m.host.gbps = 3600;
  m.rail.gbps = 400;
  m.tflops = 989;
  m.memory_bytes = 80 * kGB;
  return m;
}

// DGX B200, by its data sheet: a GPU has 1.8 TB/s of NVLink, both directions together, a 400 Gb/s
// ConnectX-7, 180 GB, and 2250 TFLOP/s dense in bf16 (4500 sparse).
Machine b200() {
  Machine m = with_gpus("b200");
  m.host.gbps = 7200;
  m.rail.gbps = 400;
  m.tflops = 2250;
  m.memory_bytes = 180 * kGB;
  return m;
}

constexpr Machine (*kPresets[])() = {cpu, h100, b200};

}  // namespace

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto preset : kPresets) names.push_back(preset().name);
  return names;
}

Machine machine_named(std::string_view name) {
  for (const auto preset : kPresets)
    if (Machine m = preset(); m.name == name) return m;
  throw Error(fmt::format("machine '{}': there are {}", name, fmt::join(machine_names(), ", ")));
}

Machine unmeasured_machine() {
  Machine m = cpu();
  m.name = "unmeasured";
  m.host.gbps = 80;
  m.rail.gbps = 10;
  m.payload_share = 1;  // rates that a job measures are those of payload
  m.rail_core_us = 1;
  m.reduce_GBps = 20;  // bytes that have just arrived are in a cache
  m.copy_GBps = 0;     // in the rate of `host`
  m.host_ports = false;
  return m;
}

std::string in_words(const Machine& m, bool rails) {
  std::string text =
      fmt::format("machine {}: host {:.3g} us, {:.4g} Gb/s", m.name, m.host.us, m.host.gbps);
  if (rails) text += fmt::format("; rail {:.3g} us, {:.4g} Gb/s", m.rail.us, m.rail.gbps);
  text += fmt::format("; core {:.3g} us", m.core_us + (rails ? m.rail_core_us : 0));
  const auto rate = [&](const char* what, double GBps) {
    if (GBps > 0) text += fmt::format(", {} {:.3g} GB/s", what, GBps);
  };
  rate("sum", m.reduce_GBps);
  rate("copy", m.copy_GBps);
  return text;
}

}  // namespace weft
