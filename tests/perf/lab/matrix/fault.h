// The faults that `weft lab matrix` injects, and the runs of a matrix drawn from a seed. Pure: does
// not know how a lab is broken, nor what a validation says.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class FaultPlace {
  kTransmit,  // what one port sends
  kReceive,   // what one port receives
  kPort,
  kHost,
  kRail,
  kPath,   // what one port sends to one peer
  kLeaf,   // some ports of a rail
  kOther,  // one port, by means of another host
};

// A kind of fault: what can be drawn of it, and what a good report says of it.
struct FaultRow {
  std::string_view name;       // "rate"; the word of --faults
  std::string_view netlab;     // the fault's word in tests/lab/netlab_faults; empty: not there
  std::string_view softroce;   // the word in the Soft-RoCE guest; empty: not there
  std::string_view places;     // letters of the places that are drawn, see fault.cc
  std::string_view strengths;  // words, separated by blanks
  std::string_view ids;        // of findings that name the kind, separated by blanks
  std::string_view verdicts;   // that are right, separated by blanks
  bool in_mid_run;             // injected while the validation runs
  bool in_pairs;               // can be together with a second fault
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
// The place as the labs' scripts have places: "h2r1:tx", "h2", "rail1", "h2r1,h3r1".
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
  int repeat = 0;  // in place of `runs`: runs of each kind, whose classes of place take turns
  int pairs = 0;   // runs with two faults
  int clean = 10;  // runs without one, spread evenly among the others
  bool busy_core = false;
  std::vector<std::string> faults;  // rows' names; empty: all that the lab has
};

// One run of the matrix: no fault, one or two.
struct Trial {
  std::string id;  // "rate-transmit/3", "clean/0", "pair/7"; "busy/" before it with a busy core
  std::vector<LabFault> faults;
  double inject_after_s = 0;  // of faults in mid-run
  bool busy_core = false;
};

// Draws all runs: a round of every kind after the other, so that a matrix that is cut off has seen
// all kinds. Equal options give equal runs. Throws Error naming a fault that is unknown, or that
// the lab does not have.
std::vector<Trial> draw_trials(const MatrixOptions& options);

}  // namespace weft
