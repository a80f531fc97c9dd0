#include "support/pairwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace weft {
namespace {

using testing::Axis;
using testing::Pairwise;

using Case = std::tuple<int, std::string, bool, int>;

const std::vector<int> kNumbers = {1, 2, 3, 5, 8, 13, 21};
const std::vector<std::string> kWords = {"a", "b", "c", "d"};

bool exists(int number, const std::string& word, bool flag, int other) {
  return !(number == 8 && flag) && !(word == "d" && other != 0);
}

Pairwise<int, std::string, bool, int> cases() {
  return Pairwise(Axis<int>{"number", kNumbers}, Axis<std::string>{"word", kWords},
                  Axis<bool>{"flag", {false, true}}, Axis<int>{"other", {0, 1, 2}});
}

// Every pair of values in these rows, with the two axes.
template <std::size_t... I>
std::set<std::string> pairs_in(const std::vector<Case>& rows, std::index_sequence<I...>) {
  const auto text = [](const auto& v) {
    if constexpr (std::is_convertible_v<decltype(v), std::string>)
      return std::string(v);
    else
      return std::to_string(v);
  };
  std::set<std::string> pairs;
  for (const Case& row : rows) {
    const std::string words[] = {text(std::get<I>(row))...};
    for (std::size_t a = 0; a < std::size(words); ++a)
      for (std::size_t b = a + 1; b < std::size(words); ++b)
        pairs.insert(std::to_string(a) + "=" + words[a] + "," + std::to_string(b) + "=" + words[b]);
  }
  return pairs;
}
std::set<std::string> pairs_in(const std::vector<Case>& rows) {
  return pairs_in(rows, std::make_index_sequence<4>());
}

std::vector<Case> all_that_exist() {
  std::vector<Case> all;
  for (const int number : kNumbers)
    for (const std::string& word : kWords)
      for (const bool flag : {false, true})
        for (const int other : {0, 1, 2})
          if (exists(number, word, flag, other)) all.emplace_back(number, word, flag, other);
  return all;
}

TEST(Pairwise, CoversEveryPairThatExistsInFewRowsThatExist) {
  const auto rows = cases().where(exists).rows("Pairwise");
  EXPECT_EQ(pairs_in(rows), pairs_in(all_that_exist()));
  for (const auto& [number, word, flag, other] : rows)
    EXPECT_TRUE(exists(number, word, flag, other));
  EXPECT_GE(rows.size(), kNumbers.size() * kWords.size());  // every pair of the two longest axes
  EXPECT_LE(rows.size(), kNumbers.size() * kWords.size() + 4);
  EXPECT_EQ(std::set<Case>(rows.begin(), rows.end()).size(), rows.size()) << "a row is there twice";
}

TEST(Pairwise, KeepsRowsByNameEvenWithValuesOfNoAxis) {
  const Case failed{8, "d", true, 2}, odd{34, "a", true, 1};
  auto some = cases().where(exists);
  some.keep("failed once", 8, "d", true, 2).keep("of no axis", 34, "a", true, 1);
  const auto rows = some.rows("Pairwise");
  ASSERT_GE(rows.size(), 2u);
  EXPECT_EQ(rows[0], failed);
  EXPECT_EQ(rows[1], odd);
  for (const std::string& pair : pairs_in(all_that_exist()))
    EXPECT_TRUE(pairs_in(rows).contains(pair)) << pair;
}

TEST(Pairwise, IsTheSameEachTime) {
  EXPECT_EQ(cases().where(exists).rows("Pairwise"), cases().where(exists).rows("Pairwise"));
}

TEST(Pairwise, SaysWhatItCovers) {
  ::testing::internal::CaptureStdout();
  const auto rows = cases().where(exists).keep("failed once", 8, "d", true, 2).rows("Pairwise");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "Pairwise: every pair of 7 number x 4 word x 2 flag x 3 other: " +
                std::to_string(rows.size()) + " rows of 168, of which " +
                std::to_string(all_that_exist().size()) + " exist; kept: failed once\n");
}

}  // namespace
}  // namespace weft
