// What the commands of `weft` end with.
#pragma once

namespace weft {

// Exit codes of every command: those of Nagios plus 4 for the tester's own errors.
enum Exit : int { kExitOk = 0, kExitWarn = 1, kExitCritical = 2, kExitUnknown = 3, kExitError = 4 };

}  // namespace weft
