// A policy from a healthy run.
#pragma once

#include <string>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// TOML as read_policy() reads it: rates, MTUs, flow control and firmware on which all ports agree.
// A run like this one, held against it, is OK.
std::string suggested_policy(const Report& report);

// `--suggest-policy PATH`: writes the file, unless the verdict is not OK: then stderr says so.
// Throws Error naming the path where the file cannot be written.
void suggest_policy(const std::string& path, const Report& report);

}  // namespace weft::fabric
