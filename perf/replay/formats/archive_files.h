// Files out of gzip and tar, by libarchive.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft::replay {

// Returns the name (of a lone gzipped file: empty) and the bytes of each file that is packed in
// `bytes`. Throws Error naming `path` where the archive is damaged or cut off.
std::vector<std::pair<std::string, std::string>> unpack(const std::string& path,
                                                        const std::string& bytes);

}  // namespace weft::replay
