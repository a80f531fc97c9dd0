// Prerequisites of hosts for meaningful rates: cores near the NIC, locked memory, a steady clock,
// and a path from NIC to GPU.
#include <fmt/format.h>

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

// Returns whether a rate or latency cause is at this port.
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
      set_number(finding, Unit::kCount, *host.numa_node, *port.numa_node);
    }
    // A port that looks slow from remote cores is not judged; see rates.cc.
    if (is_suspect(observed, host, port)) {
      finding.where.kind = PlaceKind::kTester;
      finding.severity = Severity::kFail;
    }
    return std::vector{finding};
  });
}

// Settings that the host lacks for RDMA at full speed, in one finding.
Judged host_setup(const Check& check, const Observed& observed) {
  return each_host(observed, [&](const HostFacts& host) -> Outcome {
    const bool rdma = has_rdma_hardware(host);
    if (!host.governor && !rdma) return std::nullopt;
    Finding finding = text_finding(check, at_host(host.host), "", "");
    const auto lacks = [&](std::string_view what, const std::string& is, std::string_view wanted) {
      const auto join = [](std::string& to, std::string_view name, std::string_view value) {
        to += fmt::format("{}{} {}", to.empty() ? "" : ", ", name, value);
      };
      join(finding.text, what, is);
      join(finding.expected_text, what, wanted);
      add_text(finding, std::string(what), is);
    };
    constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
    if (rdma && host.memlock_bytes.value_or(kUnlimited) != kUnlimited)
      lacks("memlock", fmt::format("{} KiB", *host.memlock_bytes / 1024), "unlimited");
    if (rdma && host.huge_pages.value_or("") == "never") lacks("huge pages", "never", "madvise");
    if (host.governor.value_or("performance") != "performance")
      lacks("governor", *host.governor, "performance");
    if (finding.text.empty() && rdma && !host.memlock_bytes)
      return std::vector{make_unknown(check, finding.where)};
    if (finding.text.empty()) return std::vector<Finding>{};
    if (!rdma) finding.severity = Severity::kInfo;
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
     "The cores that this process may use are on another socket than the port. The path between "
     "sockets then limits the rate of the port, which does not reflect the network.",
     "Bind the ranks near their NICs (`numactl`, `--bind-to`, the launcher's own binding) and run "
     "again. Rates of this port are not judged meanwhile.",
     numa},
    {"host-setup", CheckKind::kPassive, Severity::kWarn, "the host is set up for RDMA",
     "/proc/self/limits (memlock), sysfs transparent_hugepage/enabled, nr_hugepages, "
     "cpufreq/scaling_governor",
     "memlock unlimited, huge pages, governor performance",
     "A limit on locked memory makes the registration of large buffers fail in the middle of a "
     "job; "
     "without huge pages NICs translate more addresses; cores that change their clock add jitter.",
     "Set `* soft memlock unlimited` and `* hard memlock unlimited` in limits.conf and "
     "LimitMEMLOCK=infinity for the scheduler's daemon; "
     "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`; "
     "`cpupower frequency-set -g performance`.",
     host_setup},
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
