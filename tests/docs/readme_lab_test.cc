// Runs the blocks of the pages that need network namespaces: see pages.h.
// labels: lab
// ctest: whole alone
#include <gtest/gtest.h>

#include "tests/docs/run_block.h"

namespace weft::testing {
namespace {

class LabPage : public ::testing::TestWithParam<Block> {};

TEST_P(LabPage, BlockIsTrue) { run_block(GetParam()); }

std::vector<Block> blocks_of_netlab() {
  std::vector<Block> blocks = all_blocks();
  std::erase_if(blocks, [](const Block& b) { return !b.runs() || b.mark("needs") != "netlab"; });
  return blocks;
}
INSTANTIATE_TEST_SUITE_P(Docs, LabPage, ::testing::ValuesIn(blocks_of_netlab()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace weft::testing
