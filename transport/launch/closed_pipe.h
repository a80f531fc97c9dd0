// The end of a program whose reader has gone, as in `weft perf all_reduce | head -1`: by SIGPIPE,
// as other programs end, and without a word from the other ranks of its job.
#pragma once

#include <sys/types.h>

namespace weft {

// The variable in which a launcher tells its ranks its process id.
inline constexpr char kLauncherVariable[] = "WEFT_LAUNCHER";
// The exit code of a shell for a program that SIGPIPE ended.
inline constexpr int kExitClosedPipe = 128 + 13;

// Returns whether standard output or standard error is a pipe or a socket whose reader has gone.
// Async-signal-safe.
bool output_closed() noexcept;

// Makes SIGPIPE end this process, also where its parent ignores the signal. A rank whose output is
// closed first tells its launcher, which ends all ranks at once: a rank that is simply gone would
// have the others report a failure of the job. Call once, before the first thread.
void end_at_closed_pipe() noexcept;

}  // namespace weft
