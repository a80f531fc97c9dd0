// Runs a block of a page in a folder that looks like a built source tree.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/process/temporary_folder.h"
#include "tests/docs/pages.h"

namespace weft::testing {

// ./weft is the binary under test; in the tutorials it has the algorithm of your-own-algorithm.md.
// Beside it is a binary with a device made of host memory.
inline void run_block(const Block& block) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const bool tutorial = block.page.starts_with("docs/tutorials/");
  fs::create_symlink(tutorial ? WEFT_TUTORIAL_BINARY : WEFT_BINARY, folder / "weft");
  fs::create_symlink(WEFT_WITH_FAKES, folder / "weft_with_fakes");
  for (const char* name : {"docs", "tests", "perf"})
    fs::create_symlink(kSource / name, folder / name);
  fs::create_directory(folder / "build");
  fs::create_symlink(fs::path(WEFT_BINARY).parent_path(), folder / "build/release");
  std::string begin = "cd " + folder.path() +
                      " && export PATH=$PWD:$PATH SOURCE=" + kSource.string() +
                      " OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                      "OMPI_MCA_rmaps_base_oversubscribe=1 WEFT_PROFILE=$PWD/profile.json\n";
  if (const std::string needs = block.mark("needs");
      !needs.empty() && kCapabilities.contains(needs)) {
    const Output there = run(begin + kCapabilities.at(needs));
    if (there.exit_code != 0)
      GTEST_SKIP() << "missing capability: " << needs << ", which a page needs " << there.text;
    // libpmix leaks a few bytes at start, which ASan would report.
    if (needs == "mpirun") begin += "export ASAN_OPTIONS=detect_leaks=0\n";
  }
  std::ofstream(folder / "block") << script_of(block);
  expect_true(block, run(begin + "exec bash ./block"));
}

}  // namespace weft::testing
