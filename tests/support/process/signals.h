// Counts the threads of a process that can receive signals.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace weft::testing {

// Threads of this process that do not block all signals.
inline int threads_with_signals() {
  int n = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigBlk:")) n += std::stoull(line.substr(7), nullptr, 16) == 0;
  }
  return n;
}

}  // namespace weft::testing
