// The machine for which times are predicted: its links, and the costs of its cores.
//
// `auto`, `weft explain`, `sim`, `plan`, `replay` and `validate` all predict with this one
// description. coll/jobs/machine_options.h adds the options that choose and change it; costs_of()
// (coll/select/cost.h) and fabric_of() (coll/sim/simulate.h) convert it to what the cost model and
// the simulator charge.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The payload's share of an Ethernet frame for TCP at MTU 1500 (1448 of 1514 bytes on the wire,
// without preamble, as a shaper counts).
inline constexpr double kTcpPayloadShare = 1448.0 / 1514.0;
// The payload's share for RoCE v2 at the largest path MTU, 4096: 58 bytes of headers and checksum.
inline constexpr double kRocePayloadShare = 4096.0 / (4096 + 58);

struct Machine {
  struct Link {
    double us = 0;    // latency of a message
    double gbps = 0;  // rate of one direction
  };
  std::string name;
  Link host;                 // between two ranks of a host
  Link rail;                 // between hosts; gbps: of the line, with headers
  Link spine;                // between hosts, if a message changes rails; gbps 0: as a rail
  double payload_share = 1;  // payload's share of the bytes on a rail or the spine
  double core_us = 0;        // core time for a message, at each end
  double rail_core_us = 0;   // additional core time between hosts
  double reduce_GBps = 0;    // rate at which a core reduces received data; 0: takes no CPU time
  double copy_GBps = 0;      // rate at which a core copies received data; 0: takes no CPU time
  bool rail_copies = false;  // cores also copy data received over rails, as with sockets
  // Bytes inside a host pass ports of their own (links of GPUs, DMA). False: a core moves them, at
  // the rate of `host`.
  bool host_ports = true;
  double tflops = 0;        // dense bf16 rate of a rank's device, TFLOP/s; 0: unknown
  double memory_bytes = 0;  // memory of a rank's device; 0: unknown

  double spine_gbps() const { return spine.gbps > 0 ? spine.gbps : rail.gbps; }
};

inline constexpr const char* kDefaultMachine = "h100";  // for all commands that predict

// "cpu", "h100", "b200". Throws Error that lists the presets if there is none with the name.
Machine machine_named(std::string_view name);
std::vector<std::string> machine_names();

// Assumed by a job before it has measured its links: cores move the bytes inside a host.
Machine unmeasured_machine();

// One line: "machine cpu: host 0.5 us, 200 Gb/s; rail 5 us, 100 Gb/s; core 0.2 us, sum 4.5 GB/s,
// copy 5 GB/s". core: for a message, at each end. `rails`: whether there are several hosts.
std::string in_words(const Machine& machine, bool rails);

}  // namespace weft
