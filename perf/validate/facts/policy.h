// The expected state of a fleet: a TOML file that its engineers write, or defaults. Without a
// declared value, a check uses what the NIC reports and the majority of hosts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::fabric {

// Limits, all with defaults. Rates are fractions of the expected rate.
struct Thresholds {
  double warn_rate = 0.93, fail_rate = 0.87;  // lower limits for a port or a path
  // Upper limits, as multiples of the fleet's median.
  double warn_latency = 2.0, fail_latency = 5.0;
  double warn_loss = 0,
         fail_loss = 1e-5;  // upper limits, lost / sent packets (lower end of the interval)
  // Upper limits of the fraction of time in pause: WARN.
  double idle_pause = 0, loaded_pause = 0.01;
  double victim_ratio = 2.0;  // upper limit of p99 under load / idle p99: WARN
  double incast_share = 0.90;
  double bisection_share = 0.90;
  double class_leak = 0.01;  // upper limit of the fraction of RDMA bytes outside their class
  double confidence = 0.95;
};

struct Policy {
  std::string file;                             // empty: no file, only defaults
  std::optional<double> rate_gbps;              // rate of every rail
  std::map<int, double> rail_rate_gbps;         // rates of single rails, instead of rate_gbps
  std::map<std::string, std::string> firmware;  // firmware version by board id
  std::optional<int> mtu;                       // MTU of the network interfaces in bytes
  std::optional<int> rdma_mtu;                  // MTU of the RDMA ports (active_mtu) in bytes
  std::optional<int> pfc_priority;              // -1: no priority with PFC is expected
  std::optional<int> dscp;                      // DSCP of RDMA traffic
  std::optional<std::string> trust;             // "dscp", "pcp"
  std::optional<bool> dcqcn;                    // congestion control is expected
  std::map<std::string, std::string> cc_parameters;
  bool adaptive_routing = false;  // packets of a flow may be reordered
  std::optional<bool> lossless;   // empty: true for RDMA ports, false for plain interfaces
  std::vector<std::string> excluded_devices;
  std::vector<std::string> skipped_checks;  // ids
  Thresholds thresholds;

  // Returns the declared rate of a rail in Gb/s, headers included; nullopt: not declared.
  std::optional<double> declared_gbps(int rail) const {
    const auto of_rail = rail_rate_gbps.find(rail);
    return of_rail == rail_rate_gbps.end() ? rate_gbps : of_rail->second;
  }
};

// Reads a TOML file; every key is optional:
//   rate = "400 Gb/s"                     mtu = 9000            # bytes, interface
//   rdma_mtu = 4096                       # bytes, active_mtu of the RDMA port
//   pfc_priority = 3                      # -1: no PFC expected
//   dscp = 26                             trust = "dscp"        # or "pcp"
//   dcqcn = true                          lossless = true
//   adaptive_routing = true               # packets may be reordered
//   excluded_devices = ["mlx5_bond_0"]    skipped_checks = ["host-setup"]
//   [rail_rate]                           0 = "200 Gb/s"
//   [firmware]                            MT_0000000838 = "28.41.1000"
//   [cc_parameters]                       rp_ai_rate = 5
//   [thresholds]                          warn_rate = 0.93      # as in Thresholds
// Throws Error naming the file, line, key, value and a remedy: an unknown key (with the nearest
// known one), a wrong unit, a rate that is not positive, limits in the wrong order. Does not check
// the ids in skipped_checks.
Policy read_policy(const std::string& path);

// Parses "400 Gb/s", "400Gb/s", "50 GB/s", "400 Mb/s" as Gb/s. Throws Error naming known units.
double rate_from(const std::string& text);

}  // namespace weft::fabric
