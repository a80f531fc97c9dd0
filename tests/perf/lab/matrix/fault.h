// The faults that the matrix injects, and the runs of a matrix drawn from a seed. All functions are
// pure, and independent of how faults are injected and of how validations report them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class FaultPlace {
  kTransmit,  // packets sent by one port
  kReceive,   // packets received by one port
  kPort,
  kHost,
  kRail,
  kPath,   // packets from one port to one peer
  kLeaf,   // some ports of a rail
  kOther,  // one port, through another host
};

// A kind of fault: the variants that can be drawn, and the correct reports.
struct FaultRow {
  std::string_view name;       // "rate"; the word of --faults
  std::string_view netlab;     // the fault's word in tests/lab/netlab_faults; empty: unsupported
  std::string_view softroce;   // the word in the Soft-RoCE guest; empty: unsupported
  std::string_view places;     // letters of possible places, see fault.cc
  std::string_view strengths;  // separated by blanks
  std::string_view ids;        // of findings that identify the kind, separated by blanks
  std::string_view verdicts;   // correct ones, separated by blanks
  bool in_mid_run;             // injected while the validation runs
  bool in_pairs;               // can be combined with a second fault
};
std::span<const FaultRow> fault_rows();
const FaultRow* find_fault_row(std::string_view name);  // nullptr: none

struct LabFault {
  std::string kind;  // a row's name
  FaultPlace place = FaultPlace::kPort;
  std::string host;                // empty: a rail
  int rail = -1;                   // -1: all of the host
  std::string peer;                // of kPath and kOther
  std::vector<std::string> hosts;  // of kLeaf
  std::string strength;
  bool operator==(const LabFault&) const = default;
};
// "rate 50% of h2r1:tx", for people.
std::string in_words(const LabFault& fault);
// The place in the syntax of the labs' scripts: "h2r1:tx", "h2", "rail1", "h2r1,h3r1".
std::string place_word(const LabFault& fault);
nlohmann::ordered_json to_json(const LabFault& fault);
LabFault fault_from_json(const nlohmann::ordered_json& json);  // throws nlohmann's exceptions

// The lab in which faults are drawn.
struct MatrixLab {
  std::string name;  // "netlab", "softroce"
  std::vector<std::string> hosts;
  int rails = 1;
  bool operator==(const MatrixLab&) const = default;
};

struct MatrixOptions {
  MatrixLab lab;
  std::uint64_t seed = 1;
  int runs = 10;   // of each kind of fault and class of place
  int repeat = 0;  // overrides `runs`: runs of each kind, whose places take turns
  int pairs = 0;   // runs with two faults
  int clean = 10;  // runs without faults, spread evenly among the others
  bool busy_core = false;
  std::vector<std::string> faults;  // rows' names; empty: all that the lab supports
};

// One run of the matrix: no fault, one or two.
struct Trial {
  std::string id;  // "rate-transmit/3", "clean/0", "pair/7"; prefix "busy/" with a busy core
  std::vector<LabFault> faults;
  double inject_after_s = 0;  // for faults in mid-run
  bool busy_core = false;
};

// Draws all runs in rounds over all kinds, so that an interrupted matrix has covered all kinds.
// Equal options give equal runs. Throws Error naming a fault that is unknown or that the lab does
// not support.
std::vector<Trial> draw_trials(const MatrixOptions& options);

}  // namespace weft
