// SampleFeed: returns the text's samples in any order, and cuts them concurrently with the caller.
#include "train/model/sample_feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace weft::train {
namespace {

constexpr Index kSamplesOfItem = 2, kPositionsOfItem = 5;
constexpr std::uint64_t kSeedOfFeed = 3, kNoEnd = 1000;

Text some_text() {
  std::string bytes;
  for (int i = 0; i < 700; ++i) bytes += static_cast<char>('a' + (i * 5 + i * i / 7) % 26);
  return Text(bytes, "some text");
}

std::vector<Token> tokens_of(const Text& text, std::uint64_t first) {
  std::vector<Token> tokens(kSamplesOfItem * kPositionsOfItem), targets(tokens.size());
  for (Index s = 0; s < kSamplesOfItem; ++s)
    text.sample(kSeedOfFeed, first + s, kPositionsOfItem, tokens.data() + s * kPositionsOfItem,
                targets.data() + s * kPositionsOfItem);
  tokens.insert(tokens.end(), targets.begin(), targets.end());
  return tokens;
}

// Items in order, repeated, from another position, of another text, and the last item.
TEST(SampleFeed, GivesTheItemsThatAreAskedFor) {
  const Text text = some_text(), other("The quick brown fox jumps over the lazy dog", "another");
  const auto first_sample = [](std::uint64_t item) { return 10 * item + 1; };
  SampleFeed<double> feed(first_sample, kSeedOfFeed, kSamplesOfItem, kPositionsOfItem);
  Batch batch;
  const std::pair<const Text*, std::uint64_t> items[] = {
      {&text, 0}, {&text, 1}, {&text, 2}, {&text, 2}, {&text, 7}, {&other, 8}, {&text, 0}};
  for (const auto& [of, item] : items) {
    feed.fill(batch, *of, item, kNoEnd);
    std::vector<Token> got = batch.tokens;
    got.insert(got.end(), batch.targets.begin(), batch.targets.end());
    EXPECT_EQ(got, tokens_of(*of, 10 * item + 1)) << of->source() << " " << item;
    feed.done();
  }
  EXPECT_EQ(feed.take_records().size(), std::size(items));
  EXPECT_TRUE(feed.take_records().empty());
}

// The next item is cut while the caller computes, without a request. An item past the end is not
// cut.
TEST(SampleFeed, CutsTheNextItemBesideTheCaller) {
  std::atomic<std::uint64_t> cut{0};  // the largest item
  std::atomic<bool> elsewhere{true};
  const auto me = std::this_thread::get_id();
  const auto first_sample = [&](std::uint64_t item) {
    if (item > 0) elsewhere = elsewhere && std::this_thread::get_id() != me;
    cut = item;
    return item;
  };
  const Text text = some_text();
  SampleFeed<double> feed(first_sample, kSeedOfFeed, kSamplesOfItem, kPositionsOfItem);
  Batch batch;
  const auto comes = [&](std::uint64_t item) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (cut != item && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return cut == item;
  };
  feed.fill(batch, text, 0, 2);
  EXPECT_TRUE(comes(1));
  feed.fill(batch, text, 1, 2);
  feed.forget();  // joins the thread
  EXPECT_EQ(cut, 1u);
  EXPECT_TRUE(elsewhere);
}

// Exceptions of the thread reach the caller.
TEST(SampleFeed, ThrowsWhatTheThreadThrows) {
  const Text text = some_text();
  SampleFeed<float> feed(
      [](std::uint64_t item) -> std::uint64_t {
        if (item == 1) throw Error("no item 1");
        return item;
      },
      kSeedOfFeed, kSamplesOfItem, kPositionsOfItem);
  Batch batch;
  feed.fill(batch, text, 0, kNoEnd);
  EXPECT_THROW(feed.fill(batch, text, 1, kNoEnd), Error);
  feed.fill(batch, text, 2, kNoEnd);
}

}  // namespace
}  // namespace weft::train
