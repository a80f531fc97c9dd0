// What to do about a finding: the registry's remedy names all that may be behind a check, and this file
// keeps of it what the finding leaves open.
#include <algorithm>
#include <iterator>

#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

struct Remedy {
  std::string_view id;
  bool (*holds)(const Finding& finding);
  std::string_view text;
};

bool sends(const Finding& f) { return f.where.direction == Direction::kTransmit; }
bool receives(const Finding& f) { return f.where.direction == Direction::kReceive; }
bool is_path(const Finding& f) { return f.where.kind == PlaceKind::kPath; }
bool is_port(const Finding& f) { return f.where.kind == PlaceKind::kPort; }
bool of_flows(const Finding& f) {
  return std::ranges::find(f.evidence, "share_of_flows", &Evidence::name) != f.evidence.end();
}
bool of_time(const Finding& f) { return !of_flows(f); }

constexpr Remedy kKnown[] = {
    {"port-rate", sends,
     "Look at the host first: the port's PCIe link, its cores, its NIC. Then look at the link: rate, "
     "width, errors."},
    {"port-rate", receives,
     "Look at the switch port first: a shaper, a wrong speed, dropped packets. Then look at the "
     "link: rate, width, errors."},
    {"port-rate", is_port,
     "Both directions are slow: look at the link (rate, width, errors), at the port's PCIe link, and "
     "at the speed of the switch port."},
    {"unreachable", is_path,
     "Both ports reach others, so look between the two: routes, ARP, a firewall, or a dead member of "
     "a link group."},
    {"unreachable", is_port,
     "The port reaches nobody: look at its cable and at its switch port, then ping a peer over this "
     "very interface."},
    {"unstable-rate", of_flows,
     "Compare the members of the ECMP or link group on the way to the place; the named flow labels "
     "select the bad one."},
    {"unstable-rate", of_time,
     "Look for flaps, pause, and loss at the place, then for other jobs that share the links."},
};

constexpr Remedy kUnknown[] = {
    {"nothing-measured", nullptr,
     "Start a rank on each of two or more hosts: mpirun -N 1, or srun --ntasks-per-node 1. Two "
     "ranks on one host measure no fabric."},
    {"probe-left-out", nullptr, "Run again with a larger --budget."},
    {"port-not-measured", nullptr,
     "Run again with a larger --budget. If the port is left out again, look at what else is found "
     "at its host."},
    {"collective-wrong", nullptr, "Run again with a larger --budget."},
    {"like-slower", nullptr, "Run again with a larger --budget."},
};

}  // namespace

std::string remedy_of(const Finding& f) {
  if (f.unknown) {
    const auto* row = std::ranges::find(kUnknown, f.id, &Remedy::id);
    if (row != std::end(kUnknown)) return std::string(row->text);
    if (f.id != "rate-noise" && f.id != "declared" && find_check(f.id))
      return "Let weft read what the check needs (run as root, with /sys and debugfs of the host), or "
             "leave the check out: skipped_checks = [\"" + f.id + "\"] in the policy.";
  }
  for (const Remedy& row : kKnown)
    if (!f.unknown && row.id == f.id && row.holds(f)) return std::string(row.text);
  const Check* check = find_check(f.id);
  return check ? std::string(check->remedy) : "";
}

}  // namespace weft::fabric
