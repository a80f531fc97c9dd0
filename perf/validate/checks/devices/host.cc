// What hosts must offer before their rates say anything of the network: near cores, locked memory,
// a steady clock, and a way from NIC to GPU.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

bool has_rdma_hardware(const HostFacts& host) {
  return std::ranges::any_of(host.ports,
                             [](const PortFacts& port) { return port.rdma && !is_soft(port); });
}

// A rate or latency of this port is blamed on something.
bool is_suspect(const Observed& observed, const HostFacts& host, const PortFacts& port) {
  return std::ranges::any_of(observed.causes, [&](const Cause& cause) {
    if (cause.kind != CauseKind::kRate && cause.kind != CauseKind::kLatency) return false;
    const Where where = place_of(observed, cause);
    return where.host == host.host && (where.rail < 0 || where.rail == port.rail);
  });
}

Judged numa(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    const bool cpus = host.allowed_cpus && port.local_cpus;
    const bool nodes = host.numa_node && port.numa_node && *port.numa_node >= 0;
    if (!cpus && !nodes) return std::nullopt;
    if (!has_remote_cores(host, port)) return std::vector<Finding>{};
    Finding finding =
        cpus ? text_finding(check, at_port(host, port), *host.allowed_cpus, *port.local_cpus)
             : make_finding(check, at_port(host, port));
    if (!cpus) {
      finding.unit = Unit::kCount;
      finding.value = *host.numa_node;
      finding.expected = *port.numa_node;
    }
    // A port that looks slow to far cores is not judged; see rates.cc.
    if (is_suspect(observed, host, port)) {
      finding.where.kind = PlaceKind::kTester;
      finding.severity = Severity::kFail;
    }
    return std::vector{finding};
  });
}

Judged memlock(const Check& check, const Observed& observed) {
  return each_host(observed, [&](const HostFacts& host) -> Outcome {
    if (!has_rdma_hardware(host)) return std::nullopt;
    const Where where = at_host(host.host);
    if (!host.memlock_bytes) return std::vector{make_unknown(check, where)};
    if (*host.memlock_bytes == std::numeric_limits<std::uint64_t>::max())
      return std::vector<Finding>{};
    Finding finding = make_finding(check, where);
    finding.unit = Unit::kBytes;
    finding.value = static_cast<double>(*host.memlock_bytes);
    finding.expected = static_cast<double>(std::numeric_limits<std::uint64_t>::max());
    return std::vector{finding};
  });
}

Judged governor(const Check& check, const Observed& observed) {
  return each_host(observed, [&](const HostFacts& host) -> Outcome {
    if (!host.governor) return std::nullopt;
    if (*host.governor == "performance") return std::vector<Finding>{};
    Finding finding = text_finding(check, at_host(host.host), *host.governor, "performance");
    if (!has_rdma_hardware(host)) finding.severity = Severity::kInfo;
    return std::vector{finding};
  });
}

Judged gpudirect(const Check& check, const Observed& observed) {
  return each_host(observed, [&](const HostFacts& host) -> Outcome {
    if (host.gpus == 0 || !has_rdma_hardware(host)) return std::nullopt;
    const Where where = at_host(host.host);
    if (host.peer_memory == true || host.dmabuf == true) return std::vector<Finding>{};
    if (!host.peer_memory || !host.dmabuf) return std::vector{make_unknown(check, where)};
    return std::vector{text_finding(check, where, "none", "nvidia_peermem|dmabuf")};
  });
}

constexpr Check kHostRows[] = {
    {"numa", CheckKind::kPassive, Severity::kWarn, "the tester runs near the port",
     "sysfs device/numa_node, local_cpulist against the allowed cores", "a core near the port",
     "The cores that this process may use are on another socket than the port. The rate of the "
     "port is then that of the path between sockets, and says nothing of the network.",
     "Bind the ranks near their NICs (`numactl`, `--bind-to`, the launcher's own binding) and run "
     "again. Rates of this port are not judged meanwhile.",
     numa},
    {"memlock", CheckKind::kPassive, Severity::kWarn, "memory may be locked",
     "getrlimit RLIMIT_MEMLOCK", "unlimited",
     "The limit on locked memory is finite: registering large buffers for RDMA fails in the "
     "middle of a job.",
     "Set `* soft memlock unlimited` and `* hard memlock unlimited` in limits.conf, and "
     "LimitMEMLOCK=infinity for the scheduler's daemon.",
     memlock},
    {"governor", CheckKind::kPassive, Severity::kWarn, "cores run at a steady clock",
     "sysfs cpufreq/scaling_governor", "performance",
     "The cores change their frequency with the load, which adds jitter to latencies and slows "
     "short bursts.",
     "`cpupower frequency-set -g performance` on every host.", governor},
    {"gpudirect", CheckKind::kPassive, Severity::kFail, "NICs reach GPU memory",
     "/sys/module/nvidia_peermem; /proc/driver/nvidia/version", "one of the two works",
     "The NICs cannot read GPU memory themselves, so that every message is copied through the "
     "host's memory.",
     "Load nvidia_peermem, or use the open GPU kernel modules with a kernel that has dma-buf.",
     gpudirect},
};

}  // namespace

std::span<const Check> host_checks() { return kHostRows; }

}  // namespace weft::fabric
