// What weft says about its decisions while it runs, one line each, on stderr. Off unless WEFT_LOG
// is set to error, warn, info (failures, and who is to blame) or debug (which algorithm, transport
// and device, and why).
#pragma once

#include <spdlog/logger.h>

namespace weft {

spdlog::logger& log();

}  // namespace weft
