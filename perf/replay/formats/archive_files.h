// Unpacks gzip and tar with libarchive.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft::replay {

// Returns the name and contents of each file packed in `bytes`; a single gzipped file has no name.
// Throws Error naming `path` if the archive is damaged or truncated.
std::vector<std::pair<std::string, std::string>> unpack(const std::string& path,
                                                        const std::string& bytes);

}  // namespace weft::replay
