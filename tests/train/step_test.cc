// The step is told in order, in a function that a screen shows whole.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/process/read_file.h"

namespace weft::train {
namespace {

TEST(Step, ReadsIn25Lines) {
  const std::string source = read_file(WEFT_SOURCE_DIR "/train/trainer.cc");
  const auto begin = source.find("StepReport Trainer<T>::step() {");
  ASSERT_NE(begin, source.npos);
  const auto end = source.begin() + static_cast<std::ptrdiff_t>(source.find("\n}", begin));
  EXPECT_LE(std::count(source.begin() + static_cast<std::ptrdiff_t>(begin), end, '\n'), 25);
}

}  // namespace
}  // namespace weft::train
