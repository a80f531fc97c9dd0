#include <gtest/gtest.h>

#include <map>
#include <random>

#include "transport/messages/tag_table.h"

namespace weft {
namespace {

// Compares TagTable with std::map, with colliding tags and with many concurrent tags.
TEST(TagTable, FindsWhatAMapFinds) {
  std::mt19937_64 random(1);
  for (const std::uint64_t range : {4u, 24u, 1000u}) {
    TagTable table;
    std::map<std::uint64_t, std::uint32_t> map;
    for (std::uint32_t i = 0; i < 20000; ++i) {
      const std::uint64_t tag = random() % range << 14;
      if (random() % 2) {
        table.set(tag, i);
        map[tag] = i;
      } else {
        table.erase(tag);
        map.erase(tag);
      }
      const std::uint64_t other = random() % range << 14;
      const auto found = map.find(other);
      ASSERT_EQ(table.find(other), found == map.end() ? TagTable::kNone : found->second);
    }
    std::map<std::uint64_t, std::uint32_t> all;
    table.for_each([&](std::uint64_t tag, std::uint32_t slot) { all[tag] = slot; });
    EXPECT_EQ(all, map);
  }
}

}  // namespace
}  // namespace weft
