// Derives a policy from a healthy run.
#pragma once

#include <string>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Returns TOML for read_policy(): rates, MTUs, flow control and firmware on which all ports agree.
// A run with the same results passes this policy.
std::string suggested_policy(const Report& report);

// `--suggest-policy PATH`: writes the file; if the verdict is not OK, prints to stderr instead.
// Throws Error naming the path if the file cannot be written.
void suggest_policy(const std::string& path, const Report& report);

}  // namespace weft::fabric
