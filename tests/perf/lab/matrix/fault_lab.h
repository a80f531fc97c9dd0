// The interface of both labs for injecting faults. Functions return command lines, so that they can
// be tested without a lab.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "perf/lab/matrix/fault.h"

namespace weft {

using Command = std::vector<std::string>;

class FaultLab {
 public:
  virtual ~FaultLab() = default;
  virtual const MatrixLab& shape() const = 0;
  // The command that injects a fault; empty for a fault injected by the environment (a flipped
  // bit).
  virtual Command inject(const LabFault& fault) const = 0;
  virtual Command heal() const = 0;
  // Runs weft with these arguments, with one rank on each host.
  virtual Command ranks(const Command& weft) const = 0;
};

// Commands of tests/lab/netlab, and of `softroce` in the guest. `script` is the program, `weft`
// this binary. The lab must be up.
std::unique_ptr<FaultLab> commands_of_netlab(MatrixLab lab, std::string script, std::string weft,
                                             std::string lab_name);
std::unique_ptr<FaultLab> commands_of_softroce(MatrixLab lab, std::string weft);

// One shell line: injects the trial's mid-run faults, keeps a core busy if the trial asks for it,
// runs the validation with its output in `log` for at most `limit_s` seconds, and exits with the
// validation's exit code (124 after the limit).
std::string shell_line(const Trial& trial, const FaultLab& lab, const Command& weft,
                       const std::string& log, int limit_s);

// Quotes a word for the shell.
std::string quoted(const std::string& word);

}  // namespace weft
