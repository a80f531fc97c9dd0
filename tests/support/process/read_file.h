#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace weft {

// All of a file; empty where there is none.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace weft
