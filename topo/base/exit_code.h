// The exit codes of the commands of `weft`.
#pragma once

namespace weft {

// Codes 0 to 3 are the exit codes of Nagios plugins; 4 is an error of the command itself.
enum Exit : int { kExitOk = 0, kExitWarn = 1, kExitCritical = 2, kExitUnknown = 3, kExitError = 4 };

}  // namespace weft
