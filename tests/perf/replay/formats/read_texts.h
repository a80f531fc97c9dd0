// Jobs from texts that tests write, one file per rank.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "perf/replay/formats/read.h"
#include "support/process/temporary_folder.h"
#include "tests/perf/replay/replay_files.h"
#include "topo/base/status.h"

namespace weft::replay::testing {

// The message of the Error for these trace files; "" if they are accepted.
inline std::string refusal(const std::vector<std::string>& texts, const char* end,
                           const ReadOptions& options = {}) {
  const weft::testing::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    paths.push_back(folder / fmt::format("t.{}.{}", r, end));
    write_file(paths.back(), texts[r]);
  }
  try {
    (void)read_job(paths, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline JobTrace job(const std::vector<std::string>& texts, const char* end,
                    const ReadOptions& options = {}) {
  const weft::testing::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    paths.push_back(folder / fmt::format("t.{}.{}", r, end));
    write_file(paths.back(), texts[r]);
  }
  return read_job(paths, options);
}

}  // namespace weft::replay::testing
