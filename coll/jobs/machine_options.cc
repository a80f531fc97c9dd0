// Declares and parses the options that describe a machine. Does not predict.
#include "coll/jobs/machine_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "coll/jobs/session.h"
#include "coll/jobs/this_machine.h"
#include "coll/runtime/calibrate.h"
#include "topo/base/status.h"

namespace weft {

void add_machine_options(CLI::App& command, MachineFlags& flags, MachineParts parts) {
  section(command, "The machine");
  command
      .add_option("--machine", flags.machine,
                  fmt::format("{}, or this: cores and NICs of this host; what follows changes it",
                              fmt::join(machine_names(), ", ")))
      ->capture_default_str();
  const auto add = [&command](const char* name, double& value, const char* about,
                              const CLI::Validator& check) {
    command.add_option(name, value, about)->check(check)->default_str("");
  };
  const auto positive = CLI::PositiveNumber, at_least_0 = CLI::NonNegativeNumber;
  if (parts != MachineParts::kButRailRate)
    add("--rail-gbps", flags.rail_gbps, "rate of a rail in Gb/s (or WEFT_RAIL_GBPS)", positive);
  add("--rail-us", flags.rail_us, "latency of a rail in us", at_least_0);
  add("--host-gbps", flags.host_gbps, "rate between two ranks of a host in Gb/s", positive);
  add("--host-us", flags.host_us, "latency inside a host in us", at_least_0);
  if (parts != MachineParts::kLinks) {
    add("--spine-gbps", flags.spine_gbps,
        "from host to host, of what crosses from rail to rail (default: as a rail)", positive);
    add("--spine-us", flags.spine_us, "latency of what crosses from rail to rail", at_least_0);
  }
  command
      .add_option("--wire", flags.wire,
                  "rdma or tcp: headers on a rail (tcp: cores copy what it brings)")
      ->default_str("");
  add("--cpu-us", flags.cpu_us, "us of a core for a message, at each end", at_least_0);
  if (parts == MachineParts::kLinks) return;
  add("--reduce-gbs", flags.reduce_GBps, "GB/s of a core that reduces (0: costs nothing)",
      at_least_0);
  add("--copy-gbs", flags.copy_GBps, "GB/s of a core that copies (0: costs nothing)", at_least_0);
}

Machine machine_of(const MachineFlags& flags) {
  Machine m;
  try {
    m = flags.machine == "this" ? this_machine() : machine_named(flags.machine);
  } catch (const Error&) {
    throw Error(fmt::format("--machine {}: give {} or this", flags.machine,
                            fmt::join(machine_names(), ", ")));
  }
  if (const double declared = declared_rail_gbps(flags.rail_gbps); declared > 0)
    m.rail.gbps = declared;
  for (const auto& [given, value] : {std::pair{flags.rail_us, &m.rail.us},
                                     {flags.host_gbps, &m.host.gbps},
                                     {flags.host_us, &m.host.us},
                                     {flags.spine_gbps, &m.spine.gbps},
                                     {flags.spine_us, &m.spine.us},
                                     {flags.cpu_us, &m.core_us},
                                     {flags.reduce_GBps, &m.reduce_GBps},
                                     {flags.copy_GBps, &m.copy_GBps}})
    if (given >= 0) *value = given;
  if (flags.wire.empty()) return m;
  if (flags.wire != "rdma" && flags.wire != "tcp")
    throw Error(fmt::format("--wire {}: give rdma or tcp", flags.wire));
  m.rail_copies = flags.wire == "tcp";
  m.payload_share = m.rail_copies ? kTcpPayloadShare : kRocePayloadShare;
  return m;
}

}  // namespace weft
