// Ends a program by SIGPIPE if the reader of its output has exited, as in `weft perf all_reduce |
// head -1`, without error messages of the job's other ranks.
#pragma once

#include <sys/types.h>

namespace weft {

// Environment variable with the launcher's process id, set for its ranks.
inline constexpr char kLauncherVariable[] = "WEFT_LAUNCHER";
// A shell's exit code for a program ended by SIGPIPE.
inline constexpr int kExitClosedPipe = 128 + 13;

// Returns whether stdout or stderr is a pipe or a socket without a reader. Async-signal-safe.
bool output_closed() noexcept;

// Makes SIGPIPE end this process even if its parent ignores the signal. A rank whose output is
// closed first signals its launcher, which ends all ranks at once; otherwise the other ranks would
// report a failure of the job. Must be called once, before the first thread starts.
void end_at_closed_pipe() noexcept;

}  // namespace weft
