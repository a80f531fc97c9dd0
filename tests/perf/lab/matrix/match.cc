// Compares places as sets of atoms: a direction of a port, a path, a host itself.
#include "perf/lab/matrix/match.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "topo/base/status.h"

namespace weft {
namespace {

using Atoms = std::set<std::string>;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_word_of(std::string_view list, const std::string& word) {
  return (" " + std::string(list) + " ").find(" " + word + " ") != std::string::npos;
}

void add_port(Atoms& atoms, const std::string& host, int rail, const std::string& direction) {
  if (direction != "receive") atoms.insert(fmt::format("tx {} {}", host, rail));
  if (direction != "transmit") atoms.insert(fmt::format("rx {} {}", host, rail));
}

void add_ports(Atoms& atoms, const std::string& host, int rail, const std::string& direction,
               const MatrixLab& lab) {
  for (int r = 0; r < lab.rails; ++r)
    if (rail < 0 || rail == r) add_port(atoms, host, r, direction);
}

std::string path_atom(const std::string& from, const std::string& to, int rail) {
  // A path that is dead one way is dead both ways to TCP.
  return fmt::format("path {} {} {}", std::min(from, to), std::max(from, to), rail);
}

Atoms atoms_of(const Claim& claim, const MatrixLab& lab) {
  Atoms atoms;
  if (claim.place == "port" || claim.place == "host") {
    add_ports(atoms, claim.host, claim.rail, claim.direction, lab);
    if (claim.place == "host") atoms.insert("host " + claim.host);
  } else if (claim.place == "path") {
    for (int r = 0; r < lab.rails; ++r)
      if (claim.rail < 0 || claim.rail == r) atoms.insert(path_atom(claim.host, claim.peer, r));
  } else if (claim.place == "tester") {
    atoms.insert("host " + claim.host);
  } else {
    for (const std::string& host : lab.hosts)
      add_ports(atoms, host, claim.rail, claim.direction, lab);
  }
  return atoms;
}

// The exact place of the fault, which a good report names.
Atoms atoms_of(const LabFault& fault, const MatrixLab& lab) {
  Atoms atoms;
  switch (fault.place) {
    case FaultPlace::kTransmit:
      add_port(atoms, fault.host, fault.rail, "transmit");
      break;
    case FaultPlace::kReceive:
      add_port(atoms, fault.host, fault.rail, "receive");
      break;
    case FaultPlace::kPort:
    case FaultPlace::kOther:
      add_port(atoms, fault.host, fault.rail, "both");
      break;
    case FaultPlace::kHost:
      add_ports(atoms, fault.host, -1, "both", lab);
      break;
    case FaultPlace::kRail:
      for (const std::string& host : lab.hosts) add_port(atoms, host, fault.rail, "both");
      break;
    case FaultPlace::kLeaf:
      for (const std::string& host : fault.hosts) add_port(atoms, host, fault.rail, "both");
      break;
    case FaultPlace::kPath:
      atoms.insert(path_atom(fault.host, fault.peer, fault.rail));
      break;
  }
  return atoms;
}

// Faults of a host's processor or processes, which must not be attributed to a port.
bool is_of_the_host_itself(const LabFault& fault) {
  return fault.kind == "slow-cpu" || fault.kind == "stall" || fault.kind == "dead-rank" ||
         fault.kind == "stopped-rank" || fault.kind == "flipped-bit";
}

// Intermittent faults of a port.
bool comes_and_goes(const LabFault& fault) { return fault.kind == "spell" || fault.kind == "cut"; }

// Kinds whose place a report can narrow down only to the host and rail of one end.
bool is_loosely_placed(const LabFault& fault) {
  return fault.kind == "duplicate" || fault.kind == "swapped" || fault.kind == "leaf" ||
         fault.kind == "congestion" || fault.kind == "latency" || fault.kind == "jitter" ||
         fault.kind == "reorder" || fault.kind == "ecmp" || is_of_the_host_itself(fault);
}

// Faults that make the job itself fail with a message.
bool is_of_a_rank(const LabFault& fault) {
  return fault.kind == "dead-rank" || fault.kind == "stopped-rank" || fault.kind == "flipped-bit";
}

// Assumes one rank per host, in the order of the hosts.
bool names_the_rank(const std::string& text, const LabFault& fault, const MatrixLab& lab) {
  const auto rank = std::find(lab.hosts.begin(), lab.hosts.end(), fault.host) - lab.hosts.begin();
  const std::regex name(fmt::format("\\b(rank {}|{})\\b", rank, fault.host));
  return std::regex_search(text, name);
}

// The places at which claims may be consequences of the fault.
Atoms neighbourhood(const LabFault& fault, const MatrixLab& lab) {
  if (is_of_the_host_itself(fault)) return {"host " + fault.host};
  Atoms atoms = atoms_of(fault, lab);
  atoms.insert("host " + fault.host);
  if (fault.place == FaultPlace::kOther) add_port(atoms, fault.peer, fault.rail, "both");
  // A slow uplink splits the ports of a rail into two parts, which look alike.
  if (fault.place == FaultPlace::kLeaf)
    for (const std::string& host : lab.hosts) add_port(atoms, host, fault.rail, "both");
  if (fault.kind == "ecmp" || comes_and_goes(fault)) {
    add_port(atoms, fault.host, fault.rail, "both");
  } else if (fault.place == FaultPlace::kPath) {
    add_port(atoms, fault.host, fault.rail, "transmit");
    add_port(atoms, fault.peer, fault.rail, "receive");
  } else if (is_loosely_placed(fault) && fault.place != FaultPlace::kLeaf) {
    add_ports(atoms, fault.host, fault.rail, "both", lab);
  }
  // Add the paths that begin or end at the ports.
  for (const std::string& from : lab.hosts) {
    for (const std::string& to : lab.hosts) {
      for (int r = 0; r < lab.rails; ++r) {
        if (atoms.contains(fmt::format("tx {} {}", from, r)) ||
            atoms.contains(fmt::format("rx {} {}", to, r)))
          atoms.insert(path_atom(from, to, r));
      }
    }
  }
  return atoms;
}

bool touches(const Atoms& a, const Atoms& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& atom) { return b.contains(atom); });
}

bool is_within(const Atoms& inner, const Atoms& outer) {
  return std::all_of(inner.begin(), inner.end(),
                     [&](const std::string& atom) { return outer.contains(atom); });
}

bool is_right_loose_place(const LabFault& fault, const Claim& claim, const Atoms& claimed,
                          const Atoms& near) {
  // Members of a bond are between port and rail: either place is correct.
  if (fault.kind == "ecmp" && claim.place == "port")
    return claim.host == fault.host && claim.rail == fault.rail;
  if (fault.kind == "ecmp")
    return (claim.place == "switch" || claim.place == "rail") && claim.rail == fault.rail;
  if (fault.place == FaultPlace::kLeaf)
    return (claim.place == "switch" || claim.place == "rail") ? claim.rail == fault.rail
                                                              : is_within(claimed, near);
  return is_within(claimed, near);
}

Named name_fault(const LabFault& fault, const Seen& seen, const MatrixLab& lab) {
  const FaultRow* row = find_fault_row(fault.kind);
  const Atoms exact = atoms_of(fault, lab), near = neighbourhood(fault, lab);
  Named named;
  Atoms covered;
  for (const Claim& claim : seen.claims) {
    if (!is_word_of(row->ids, claim.id)) continue;
    if (is_of_a_rank(fault)) {
      named.kind = true;
      named.place |= claim.host == fault.host || names_the_rank(claim.text, fault, lab);
    }
    if (claim.unknown) continue;
    Atoms claimed = atoms_of(claim, lab);
    if (!touches(claimed, near)) continue;
    named.kind = true;
    if (is_loosely_placed(fault)) {
      named.place |= is_right_loose_place(fault, claim, claimed, near);
      continue;
    }
    claimed.erase("host " + claim.host);
    if (is_within(claimed, exact)) covered.insert(claimed.begin(), claimed.end());
  }
  // An intermittent fault of both directions may be absent while one of them is measured.
  const bool one_will_do = comes_and_goes(fault) && fault.place == FaultPlace::kPort;
  if (!is_loosely_placed(fault)) named.place = one_will_do ? !covered.empty() : covered == exact;
  // An unexpected "unknown" verdict names nothing.
  if (seen.verdict == "unknown" && !is_word_of(row->verdicts, seen.verdict)) return {};
  return named;
}

}  // namespace

std::string in_words(const Claim& claim) {
  std::string place = claim.host;
  if (claim.rail >= 0)
    place +=
        claim.host.empty() ? fmt::format("rail{}", claim.rail) : fmt::format("r{}", claim.rail);
  if (claim.direction == "transmit") place += ":tx";
  if (claim.direction == "receive") place += ":rx";
  if (!claim.peer.empty()) place += " to " + claim.peer;
  return fmt::format("{} at {} {}", claim.id, claim.place, place);
}

Seen seen_from_json(const nlohmann::ordered_json& report) {
  if (!report.is_object() || (report.value("schema", "") != "weft.validate/3" &&
                              report.value("schema", "") != "weft.validate/2"))
    throw Error("the report is not of the schema weft.validate/3");
  Seen seen;
  seen.verdict = lower(report.at("verdict").get<std::string>());
  for (const auto& finding : report.at("findings")) {
    Claim claim;
    claim.severity = lower(finding.at("severity").get<std::string>());
    if (claim.severity == "info") continue;
    claim.unknown = finding.value("unknown", false);
    claim.text = finding.value("text", "");
    claim.id = finding.at("id").get<std::string>();
    const auto& where = finding.at("where");
    claim.place = lower(where.at("kind").get<std::string>());
    claim.host = where.value("host", "");
    claim.rail = where.value("rail", -1);
    claim.direction = where.value("direction", "both");
    claim.peer = where.value("peer", "");
    claim.explained = !finding.value("explained_by", "").empty();
    seen.claims.push_back(std::move(claim));
  }
  return seen;
}

Match match(const Trial& trial, const Seen& seen, const MatrixLab& lab) {
  Match result;
  Atoms near;
  for (const LabFault& fault : trial.faults) {
    result.faults.push_back(name_fault(fault, seen, lab));
    near.merge(neighbourhood(fault, lab));
  }
  for (const Claim& claim : seen.claims)
    if (!claim.unknown && !claim.explained && !touches(atoms_of(claim, lab), near))
      result.false_alarms.push_back(in_words(claim));
  if (trial.faults.empty() && seen.verdict == "unknown")
    result.false_alarms.push_back("verdict unknown");
  // The heaviest of several faults determines the verdict.
  std::string right = trial.faults.empty() ? "ok" : "";
  for (const LabFault& fault : trial.faults)
    right += " " + std::string(find_fault_row(fault.kind)->verdicts);
  result.verdict = is_word_of(right, seen.verdict);
  return result;
}

}  // namespace weft
