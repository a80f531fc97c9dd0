// The log of weft: one line per decision, on stderr. WEFT_LOG sets the level: off, error (default),
// warn, info (failures, and the rank that caused them) or debug (the algorithm, transport and
// device that weft chose, and why).
#pragma once

#include <spdlog/logger.h>

namespace weft {

spdlog::logger& log();

}  // namespace weft
