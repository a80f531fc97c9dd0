#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace weft {

// Content of a file; empty if it cannot be opened.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace weft
