// The name of a Chakra trace, and the stub for builds without protobuf.
#include "train/cli/train_chakra.h"

#include <fmt/format.h>

#include <filesystem>

namespace weft::train {

std::string chakra_file(const std::string& path, Rank rank) {
  return std::filesystem::path(path).replace_extension(fmt::format(".{}.et", rank));
}

#if !WEFT_HAVE_PROTOBUF
void write_chakra_trace(const std::string&, Rank) {}
#endif

}  // namespace weft::train
