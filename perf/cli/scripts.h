// The scripts that some commands run: in the source tree this binary was built from, or installed
// beside it.
#pragma once

#include <string>

namespace weft {

// The path of this binary.
std::string this_binary();

// `path` below the source tree, or else the file of that name in ../share/weft of this binary's
// folder. Throws Error naming both when neither can be run.
std::string find_script(const std::string& path);

}  // namespace weft
