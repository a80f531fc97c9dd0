// The table of faults, and draws from the table.
#include "perf/lab/matrix/fault.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "topo/base/status.h"

namespace weft {
namespace {

// Letters of FaultRow::places, in the order of FaultPlace.
constexpr std::string_view kPlaceLetters = "trphRxlo";
constexpr std::string_view kPlaceNames[] = {"transmit", "receive", "port", "host",
                                            "rail",     "path",    "leaf", "other"};

// Groups of ids of findings.
#define WEFT_RATE_IDS "port-rate host-rate path-rate rail-rate switch-rate fleet-rate"
#define WEFT_LOSS_IDS "loss retransmits timeouts"
#define WEFT_REACH_IDS "unreachable link-state timeouts"
#define WEFT_TESTER_IDS "tester-starved latency-tail"
#define WEFT_JOB_IDS "job-failed rank-lost deadline-passed"

constexpr FaultRow kRows[] = {
    // Shares of the lab's rate. 90 % is a WARN, less is CRITICAL.
    {"rate", "rate", "rate", "trphR", "30% 50% 70% 85%", WEFT_RATE_IDS, "critical", false, true},
    {"rate-90", "rate", "rate", "trp", "90%", WEFT_RATE_IDS, "warn", false, false},
    {"loss", "loss", "loss", "trphR", "1e-2 1e-3 1e-4", WEFT_LOSS_IDS, "critical", false, true},
    {"burst-loss", "", "burst", "t", "1e-3", WEFT_LOSS_IDS, "critical", false, true},
    {"corruption", "", "corrupt", "t", "1e-2 1e-3", WEFT_LOSS_IDS, "critical", false, true},
    {"congestion", "queue", "", "r", "48k", "congestion-loss incast discards " WEFT_RATE_IDS,
     "critical warn", false, false},
    {"latency", "delay", "delay", "t", "2ms 5ms", "latency", "critical warn", false, true},
    {"jitter", "delay", "delay", "t", "1ms~1ms", "latency latency-tail unstable-rate",
     "critical warn", false, false},
    {"reorder", "", "reorder", "t", "1e-2", "out-of-sequence retransmits loss", "critical warn",
     false, false},
    {"mtu", "mtu", "mtu", "p", "1400 1280", "mtu path-mtu", "critical", false, true},
    {"switch-mtu", "switch-mtu", "switch-mtu", "p", "1400 1280", "mtu path-mtu", "critical", false,
     true},
    {"swapped", "swap", "swap", "h", "rail0,rail1", "cables-swapped", "critical", false, true},
    {"duplicate", "duplicate", "", "o", "", "duplicate-address", "critical", false, true},
    {"down", "down", "down", "p", "on", WEFT_REACH_IDS, "critical", false, true},
    {"flap", "flap", "flap", "p", "200ms", "link-flaps", "critical", true, true},
    {"blackhole", "blackhole", "blackhole", "x", "", WEFT_REACH_IDS, "critical", false, true},
    {"leaf", "leaf", "leaf", "l", "50%", WEFT_RATE_IDS " bisection", "critical", false, false},
    // Intermittent faults, and faults of some flows only: the tester may report a rate or a loss.
    {"spell", "spell", "spell", "trp", "10%:500ms/2s 20%:1s/3s 50%:1s/2s",
     WEFT_RATE_IDS " unstable-rate", "critical warn", false, false},
    {"cut", "cut", "cut", "trp", "20ms/500ms 30ms/1s 50ms/3s",
     WEFT_LOSS_IDS " unstable-rate latency-tail", "critical warn", false, false},
    {"ecmp", "ecmp", "ecmp", "trp", "loss:3% loss:5% loss:9% rate:10%",
     WEFT_RATE_IDS " " WEFT_LOSS_IDS " unstable-rate ecmp-entropy", "critical warn", false, false},
    {"slow-cpu", "cpu", "", "h", "5% 8%", WEFT_TESTER_IDS, "tester", false, false},
    {"stall", "stall", "stall", "h", "50ms/500ms", WEFT_TESTER_IDS, "warn tester", false, false},
    {"flipped-bit", "flip", "flip", "h", "", "collective-wrong", "critical", false, false},
    {"dead-rank", "signal", "signal", "h", "KILL", WEFT_JOB_IDS, "unknown critical tester", true,
     false},
    {"stopped-rank", "signal", "signal", "h", "STOP", WEFT_JOB_IDS, "unknown critical tester", true,
     false},
};

#undef WEFT_RATE_IDS
#undef WEFT_LOSS_IDS
#undef WEFT_REACH_IDS
#undef WEFT_TESTER_IDS
#undef WEFT_JOB_IDS

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

// Draws without std::uniform_int_distribution, whose results differ between libraries.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  int below(std::size_t n) { return static_cast<int>(random_() % n); }
  template <typename T>
  const T& of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(below(all.size()))];
  }

 private:
  std::mt19937_64 random_;
};

// Rank 0 writes the report, so faults that end or stop a process must spare its host.
bool spares_the_first_host(std::string_view kind) {
  return kind == "dead-rank" || kind == "stopped-rank";
}

std::string another_host(const MatrixLab& lab, const std::string& host, Draw& draw) {
  std::vector<std::string> others = lab.hosts;
  std::erase(others, host);
  return others.empty() ? "" : draw.of(others);
}

LabFault draw_fault(const FaultRow& row, FaultPlace place, const MatrixLab& lab, Draw& draw) {
  LabFault fault;
  fault.kind = row.name;
  fault.place = place;
  const std::vector<std::string> strengths = words_of(row.strengths);
  if (!strengths.empty()) fault.strength = draw.of(strengths);
  std::vector<std::string> hosts = lab.hosts;
  if (spares_the_first_host(row.name) && hosts.size() > 1) hosts.erase(hosts.begin());
  if (place != FaultPlace::kRail && place != FaultPlace::kLeaf) fault.host = draw.of(hosts);
  if (place != FaultPlace::kHost) fault.rail = draw.below(static_cast<std::size_t>(lab.rails));
  if (place == FaultPlace::kPath || place == FaultPlace::kOther)
    fault.peer = another_host(lab, fault.host, draw);
  if (place == FaultPlace::kLeaf) {
    // At least two hosts, and at least as many outside.
    const std::size_t size = std::max<std::size_t>(2, lab.hosts.size() / 2);
    for (std::size_t i = hosts.size(); i > 1; --i)
      std::swap(hosts[i - 1], hosts[static_cast<std::size_t>(draw.below(i))]);
    hosts.resize(std::min(size, hosts.size()));
    std::sort(hosts.begin(), hosts.end());
    fault.hosts = hosts;
  }
  // The job's control plane uses rail 0: these faults there would prevent the report.
  if ((fault.kind == "duplicate" || fault.kind == "down" || fault.kind == "blackhole" ||
       fault.kind == "flap") &&
      fault.rail == 0 && lab.rails > 1)
    fault.rail = 1 + draw.below(static_cast<std::size_t>(lab.rails - 1));
  return fault;
}

bool in_lab(const FaultRow& row, const MatrixLab& lab) {
  return !(lab.name == "netlab" ? row.netlab : row.softroce).empty();
}

// One row and one of its places, for which `runs` runs are drawn.
struct Cell {
  const FaultRow* row;
  FaultPlace place;
  std::string name() const {
    const std::string_view place_name = kPlaceNames[static_cast<std::size_t>(place)];
    return row->places.size() == 1 ? std::string(row->name)
                                   : fmt::format("{}-{}", row->name, place_name);
  }
};

std::vector<Cell> cells_of(const MatrixOptions& options) {
  std::vector<Cell> cells;
  for (const std::string& name : options.faults) {
    const FaultRow* row = find_fault_row(name);
    if (row == nullptr || !in_lab(*row, options.lab)) {
      std::vector<std::string_view> known;
      for (const FaultRow& other : kRows)
        if (in_lab(other, options.lab)) known.push_back(other.name);
      throw Error(
          fmt::format("--faults {}: {} has {}", name, options.lab.name, fmt::join(known, ",")));
    }
  }
  for (const FaultRow& row : kRows) {
    const auto& wanted = options.faults;
    const bool asked = std::find(wanted.begin(), wanted.end(), row.name) != wanted.end();
    if (!(wanted.empty() ? in_lab(row, options.lab) : asked)) continue;
    for (const char letter : row.places) {
      const auto place = static_cast<FaultPlace>(kPlaceLetters.find(letter));
      if (place == FaultPlace::kLeaf && options.lab.hosts.size() < 4) continue;
      if (row.name == "swapped" && options.lab.rails < 2) continue;
      cells.push_back({&row, place});
    }
  }
  return cells;
}

// Whether two faults are distinguishable: on different hosts, or a rail without the other's port.
bool apart(const LabFault& a, const LabFault& b) {
  if (a.host.empty() || b.host.empty()) return a.rail >= 0 && b.rail >= 0 && a.rail != b.rail;
  return a.host != b.host && a.peer != b.host && b.peer != a.host;
}

Trial draw_pair(const std::vector<Cell>& cells, const MatrixLab& lab, Draw& draw) {
  std::vector<Cell> able;
  for (const Cell& cell : cells)
    if (cell.row->in_pairs) able.push_back(cell);
  Trial trial;
  for (int attempt = 0; attempt < 1000 && !able.empty(); ++attempt) {
    const Cell &one = draw.of(able), &two = draw.of(able);
    const LabFault a = draw_fault(*one.row, one.place, lab, draw);
    const LabFault b = draw_fault(*two.row, two.place, lab, draw);
    if (!apart(a, b)) continue;
    trial.faults = {a, b};
    break;
  }
  return trial;
}

double draw_moment(Draw& draw) { return 1.0 + draw.below(40) / 10.0; }

// Seeds each run by its id, so that its faults do not depend on --faults, --runs and --repeat.
Trial draw_run(const Cell& cell, int run, const MatrixOptions& options) {
  Trial trial;
  trial.id = fmt::format("{}/{}", cell.name(), run);
  std::seed_seq words(trial.id.begin(), trial.id.end());
  std::uint32_t mixed[2];
  words.generate(mixed, mixed + 2);
  Draw draw(options.seed ^ (std::uint64_t{mixed[0]} << 32 | mixed[1]));
  trial.faults = {draw_fault(*cell.row, cell.place, options.lab, draw)};
  if (cell.row->in_mid_run) trial.inject_after_s = draw_moment(draw);
  return trial;
}

// Draws rounds with one run of every kind; the places of a kind take turns.
std::vector<Trial> draw_kinds_in_turn(const std::vector<Cell>& cells,
                                      const MatrixOptions& options) {
  std::vector<std::vector<Cell>> kinds;
  for (const Cell& cell : cells) {
    if (kinds.empty() || kinds.back()[0].row != cell.row) kinds.emplace_back();
    kinds.back().push_back(cell);
  }
  std::vector<Trial> trials;
  for (int turn = 0; turn < options.repeat; ++turn) {
    for (const std::vector<Cell>& places : kinds) {
      const int n = static_cast<int>(places.size());
      trials.push_back(draw_run(places[static_cast<std::size_t>(turn % n)], turn / n, options));
    }
  }
  return trials;
}

}  // namespace

std::span<const FaultRow> fault_rows() { return kRows; }

const FaultRow* find_fault_row(std::string_view name) {
  for (const FaultRow& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

std::string place_word(const LabFault& fault) {
  const std::string port = fmt::format("{}r{}", fault.host, fault.rail);
  std::vector<std::string> ports;
  switch (fault.place) {
    case FaultPlace::kTransmit:
      return port + ":tx";
    case FaultPlace::kReceive:
      return port + ":rx";
    case FaultPlace::kHost:
      return fault.host;
    case FaultPlace::kRail:
      return fmt::format("rail{}", fault.rail);
    case FaultPlace::kLeaf:
      for (const std::string& host : fault.hosts)
        ports.push_back(fmt::format("{}r{}", host, fault.rail));
      return fmt::format("{}", fmt::join(ports, ","));
    case FaultPlace::kPort:
    case FaultPlace::kPath:
    case FaultPlace::kOther:
      break;
  }
  return port;
}

std::string in_words(const LabFault& fault) {
  std::string text = fault.kind;
  if (!fault.strength.empty()) text += " " + fault.strength;
  text += " at " + place_word(fault);
  if (!fault.peer.empty()) text += " to " + fault.peer;
  return text;
}

nlohmann::ordered_json to_json(const LabFault& fault) {
  return {
      {"kind", fault.kind},        {"place", kPlaceNames[static_cast<std::size_t>(fault.place)]},
      {"host", fault.host},        {"rail", fault.rail},
      {"peer", fault.peer},        {"hosts", fault.hosts},
      {"strength", fault.strength}};
}

LabFault fault_from_json(const nlohmann::ordered_json& json) {
  LabFault fault;
  json.at("kind").get_to(fault.kind);
  const auto* name = std::find(std::begin(kPlaceNames), std::end(kPlaceNames),
                               json.at("place").get<std::string>());
  if (name == std::end(kPlaceNames) || find_fault_row(fault.kind) == nullptr)
    throw Error(fmt::format("{}: no such fault or place", json.dump()));
  fault.place = static_cast<FaultPlace>(name - std::begin(kPlaceNames));
  json.at("host").get_to(fault.host);
  json.at("rail").get_to(fault.rail);
  json.at("peer").get_to(fault.peer);
  json.at("hosts").get_to(fault.hosts);
  json.at("strength").get_to(fault.strength);
  return fault;
}

std::vector<Trial> draw_trials(const MatrixOptions& options) {
  const std::vector<Cell> cells = cells_of(options);
  std::vector<Trial> faulty;
  if (options.repeat > 0) {
    faulty = draw_kinds_in_turn(cells, options);
  } else {
    for (int run = 0; run < options.runs; ++run)
      for (const Cell& cell : cells) faulty.push_back(draw_run(cell, run, options));
  }
  Draw pairs(options.seed + 0x9e3779b97f4a7c15);
  for (int pair = 0; pair < options.pairs; ++pair) {
    Trial trial = draw_pair(cells, options.lab, pairs);
    if (trial.faults.empty()) break;  // no two of these faults can be combined
    trial.id = fmt::format("pair/{}", pair);
    trial.inject_after_s = draw_moment(pairs);
    faulty.push_back(std::move(trial));
  }
  std::vector<Trial> trials;
  int clean = 0;
  for (std::size_t i = 0; i <= faulty.size(); ++i) {
    const auto due =
        static_cast<int>((i + 1) * static_cast<std::size_t>(options.clean) / (faulty.size() + 1));
    for (; clean < due; ++clean) trials.push_back({fmt::format("clean/{}", clean), {}});
    if (i < faulty.size()) trials.push_back(std::move(faulty[i]));
  }
  for (Trial& trial : trials) {
    trial.busy_core = options.busy_core;
    if (options.busy_core) trial.id = "busy/" + trial.id;
  }
  return trials;
}

}  // namespace weft
