// Finds this binary and the scripts beside it. Does not run them.
#include "perf/cli/scripts.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "topo/base/status.h"

namespace weft {

namespace fs = std::filesystem;

std::string this_binary() { return fs::read_symlink("/proc/self/exe").string(); }

std::string find_script(const std::string& path) {
  const fs::path source = fs::path(WEFT_SOURCE_DIR) / path;
  const fs::path installed = fs::path(this_binary()).parent_path().parent_path() / "share/weft" /
                             fs::path(path).filename();
  for (const fs::path& place : {source, installed}) {
    if (access(place.c_str(), X_OK) == 0) return place.string();
  }
  throw Error(
      fmt::format("neither {} nor {} can be run: reinstall weft, or restore its source tree",
                  source.string(), installed.string()));
}

}  // namespace weft
