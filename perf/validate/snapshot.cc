// Judges recorded trees: facts and passive checks, without ranks and probes.
#include "perf/validate/snapshot.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <filesystem>

#include "perf/validate/checks/registry.h"
#include "perf/validate/facts/read_facts.h"
#include "topo/discover.h"

namespace weft::fabric {
namespace {

Sources sources_of(const std::string& root, const Policy& policy) {
  Sources sources;
  sources.excluded_devices = policy.excluded_devices;
  if (root == "/sys") return sources;
  if (!std::filesystem::is_directory(root))
    throw Error(
        fmt::format("--sysfs: '{}' is not a directory; name a copy of a host's /sys", root));
  const std::string beside = std::filesystem::absolute(root).lexically_normal().parent_path();
  sources.sysfs = root;
  sources.proc = beside + "/proc";
  sources.debugfs = beside + "/debug";
  sources.ethtool_folder = beside + "/ethtool";
  sources.live = false;
  return sources;
}

}  // namespace

Report judge_snapshots(const std::vector<std::string>& roots, const Policy& policy) {
  Report report;
  report.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  report.version = WEFT_VERSION;
  report.policy = policy;
  const Sources first = sources_of(roots.front(), policy), last = sources_of(roots.back(), policy);
  const std::vector<Nic> rails = choose_rails(discover_host(roots.front()));
  HostFacts host = read_host(rails, last);
  if (host.host.empty()) host.host = roots.front();
  host.allowed_cpus.reset();  // the cores of a job are unknown
  host.numa_node.reset();
  FleetHost& fleet = report.hosts.emplace_back();
  fleet.name = host.host;
  for (PortFacts& port : host.ports) {
    fleet.ports.push_back({port.device, port.address.value_or(""), 0, port.mtu.value_or(0), false});
    if (roots.size() < 2) continue;
    port.before = read_counters(port, first);
    port.after = read_counters(port, last);
  }
  report.rails = static_cast<int>(rails.size());
  report.facts.hosts.push_back(std::move(host));
  Policy passive = policy;
  for (const Check& check : checks())
    if (check.kind != CheckKind::kPassive) passive.skipped_checks.emplace_back(check.id);
  report.judgement = judge({report.facts, report.hosts, report.samples, report.causes, passive});
  // Missing recordings are not findings, except for the link state.
  std::erase_if(report.judgement.findings, [](const Finding& finding) {
    return finding.unknown && finding.id != "link-state";
  });
  report.verdict = verdict_of(report.judgement.findings);
  return report;
}

}  // namespace weft::fabric
