// Finds the scripts that some commands run: in the source tree of this binary, or installed beside
// this binary.
#pragma once

#include <string>

namespace weft {

// Returns the path of this binary.
std::string this_binary();

// Returns `path` below the source tree, or else the file of that name in ../share/weft of this
// binary's folder. Throws Error naming both files if neither is executable.
std::string find_script(const std::string& path);

}  // namespace weft
