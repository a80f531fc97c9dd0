// A lab that can be broken, as the matrix sees it. Both labs stand behind this one interface; each
// answer is a command line, so that what is run can be tested without a lab.
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
  // Commands that break the lab; empty for a fault that the command's environment is (a flipped
  // bit).
  virtual Command inject(const LabFault& fault) const = 0;
  virtual Command heal() const = 0;
  // Runs weft with these words, a rank on each host.
  virtual Command ranks(const Command& weft) const = 0;
};

// Words for tests/lab/netlab and for `softroce` in the guest. `script` is the program, `weft` this
// binary. The lab is up.
std::unique_ptr<FaultLab> commands_of_netlab(MatrixLab lab, std::string script, std::string weft,
                                             std::string lab_name);
std::unique_ptr<FaultLab> commands_of_softroce(MatrixLab lab, std::string weft);

// One shell line: breaks the lab in mid-run where the trial has such faults, keeps a core busy
// where the trial says so, runs the validation with its output in `log` for at most `limit_s`
// seconds, and ends with the validation's exit code (124 after the limit).
std::string shell_line(const Trial& trial, const FaultLab& lab, const Command& weft,
                       const std::string& log, int limit_s);

// A word as a shell reads it back.
std::string quoted(const std::string& word);

}  // namespace weft
