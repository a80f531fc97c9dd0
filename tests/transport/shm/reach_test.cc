// labels: fast
// Which ranks share memory depends on what each could map.
#include "transport/shm/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::shm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Lines = std::vector<std::string>;

TEST(MemoryGroups, AreTheMachinesWhereNothingIsRefused) {
  EXPECT_THAT(memory_groups(Lines{"a", "b", "a", "b"}, Lines(4)), ElementsAre(0, 1, 0, 1));
}

TEST(MemoryGroups, HaveOnlyRanksThatMapEachOther) {
  const Lines one(4, "a");
  EXPECT_THAT(memory_groups(one, Lines{"", "0,2,3 why", "", ""}), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(memory_groups(one, Lines{"1 why", "", "", ""}), ElementsAre(0, 1, 0, 0))
      << "one direction is enough";
  EXPECT_THAT(memory_groups(one, Lines{"2,3 why", "2,3 why", "0,1 why", "0,1 why"}),
              ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(memory_groups(one, Lines{"1,2,3 w", "0,2,3 w", "0,1,3 w", "0,1,2 w"}),
              ElementsAre(0, 1, 2, 3));
  // 0 and 2 map each other, so do 2 and 3, but not 0 and 3.
  EXPECT_THAT(memory_groups(one, Lines{"1,3 w", "0,2,3 w", "1 w", "0,1 w"}),
              ElementsAre(0, 1, 0, 3));
}

TEST(MemoryGroups, RefuseWhatNoRankSays) {
  for (const char* line : {"x why", "1;2", "2", "-1 why", "1,"})
    EXPECT_THROW(memory_groups(Lines(2, "a"), Lines{"", line}), Error) << line;
}

TEST(MemoryOffers, AreTried) {
  const std::string mine = memory_offer();
  const Lines offers{mine, "/proc/1/fd/99999", "!memfd_create: Function not implemented", mine};
  const std::vector<Rank> all{0, 1, 2, 3}, own{0, 3};
  EXPECT_EQ(refusals(own, offers), "");
  const std::string refused = refusals(all, offers);
  EXPECT_THAT(refused, HasSubstr("1,2 the memory of rank 1 (/proc/1/fd/99999): "));
  EXPECT_THAT(reason_of(refused), HasSubstr("the memory of rank 1 "));
  EXPECT_EQ(refusals(std::vector<Rank>{2}, offers),
            "2 the memory of rank 2: memfd_create: Function not implemented");
}

}  // namespace
}  // namespace weft::shm
