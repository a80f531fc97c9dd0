// Programs and processes as the system has them.
#pragma once

#include <sys/types.h>

#include <string>

namespace weft {

// Where execvp would find the program; empty when nowhere, with the errno.
std::string find_program(const std::string& name, int& error);

// Of the status that wait() gave: "was killed by signal 9 (Killed)", and the code that a shell has.
std::string how_it_ended(int status);
int code_of(int status);

// It ends: its sockets may be closed, so that others know of its death, while it cannot be waited
// for yet.
bool dying(pid_t pid);

}  // namespace weft
