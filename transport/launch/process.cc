// Finds programs in PATH; interprets /proc and wait() status.
#include "transport/launch/process.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace weft {

std::string find_program(const std::string& name, int& error) {
  std::vector<std::string> places;
  if (name.find('/') != std::string::npos) {
    places.push_back(name);
  } else {
    const char* path = std::getenv("PATH");
    std::stringstream dirs(path == nullptr ? "/usr/bin:/bin" : path);
    for (std::string dir; std::getline(dirs, dir, ':');) {
      places.push_back((dir.empty() ? "." : dir) + "/" + name);
    }
  }
  error = ENOENT;
  for (const std::string& place : places) {
    std::error_code ignored;
    if (!std::filesystem::exists(place, ignored)) continue;
    if (!std::filesystem::is_directory(place, ignored) && access(place.c_str(), X_OK) == 0) {
      return place;
    }
    error = EACCES;
  }
  return {};
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  }
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Tests PF_EXITING; see proc(5).
bool dying(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 1));  // a program's name may contain ')'
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;
  unsigned long flags = 0;
  fields >> flags;
  return (flags & 0x4) != 0;
}

}  // namespace weft
