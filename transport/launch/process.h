// Finds programs; reads the state and the exit status of processes.
#pragma once

#include <sys/types.h>

#include <string>

namespace weft {

// Returns the path of the program that execvp would run; empty on failure, with errno in `error`.
std::string find_program(const std::string& name, int& error);

// Describes a status of wait(): "was killed by signal 9 (Killed)".
std::string how_it_ended(int status);
// Converts a status of wait() to a shell's exit code.
int code_of(int status);

// Returns whether the process is exiting: peers may see its sockets close before wait() returns.
bool dying(pid_t pid);

}  // namespace weft
