// Finds scripts that commands run: in this binary's source tree, or installed beside the binary.
#pragma once

#include <string>

namespace weft {

// Returns the path of this binary.
std::string this_binary();

// Returns `path` below the source tree, or else the file with this name in ../share/weft, relative
// to this binary's folder. Throws Error naming both files if neither is executable.
std::string find_script(const std::string& path);

}  // namespace weft
