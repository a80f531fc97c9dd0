// Bounds on unexpected messages, for every transport: a peer far ahead is slowed, not failed, and
// their memory is returned.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>

#include "support/process/sanitizer.h"
#include "transport/conformance.h"
#include "transport/messages/unexpected_limit.h"

namespace weft::testing {

// Rank 0 sends `messages` messages of `bytes` bytes, in total more than `limit`, the
// WEFT_UNEXPECTED_BYTES of `two`.
inline void expect_slowed_not_failed(Net& two, std::size_t limit, std::size_t bytes,
                                     std::uint64_t messages) {
  const std::size_t before = UnexpectedMemory::of_process();
  Buffer from(bytes);
  from.fill(1);
  for (std::uint64_t tag = 0; tag < messages; ++tag) two[0].send(1, tag, from);
  std::size_t most = 0;
  for (int i = 0; i < 20'000; ++i) {
    two.poll_all();
    most = std::max(most, UnexpectedMemory::of_process() - before);
  }
  EXPECT_TRUE(two[0].all_ok()) << two[0].failed();
  EXPECT_FALSE(two[0].idle()) << "all of it has been taken: nothing is tested";
  EXPECT_LE(most, limit);
  EXPECT_GE(most, limit / 2);
  // A message in the other direction is not delayed.
  Buffer word(8), got(8);
  word.fill(5);
  const std::uint64_t answer = two[0].recv(1, 5000, got);
  two[1].send(0, 5000, word);
  ASSERT_TRUE(two.until([&] { return two[0].done(answer); }));
  // Posting receives lets the remaining messages arrive.
  std::deque<Buffer> to;
  for (std::uint64_t tag = 0; tag < messages; ++tag) two[1].recv(0, tag, to.emplace_back(bytes));
  ASSERT_TRUE(two.finish());
  for (const Buffer& one : to) ASSERT_TRUE(has_pattern(one.data(), bytes, 1));
  EXPECT_EQ(UnexpectedMemory::of_process(), before);
}

inline std::size_t resident_memory() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, pages = 0;
  statm >> all >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Messages arrive before their receives; after these, memory use is back to its previous value.
inline void expect_memory_comes_back(Net& two, std::size_t bytes, std::uint64_t messages) {
  constexpr std::size_t kNear = std::size_t{16} << 20;
  Buffer from(bytes), to(bytes);
  from.fill(1);
  const auto late = [&](std::uint64_t n) {
    for (std::uint64_t tag = 0; tag < n; ++tag) two[0].send(1, tag, from);
    for (int i = 0; i < 20'000 && !two[0].idle(); ++i) two.poll_all();
    for (std::uint64_t tag = 0; tag < n; ++tag) {
      to.wipe();
      const std::uint64_t id = two[1].recv(0, tag, to);
      ASSERT_TRUE(two.until([&] { return two[1].done(id); }));
      ASSERT_TRUE(has_pattern(to.data(), bytes, 1));
    }
    ASSERT_TRUE(two.finish());
  };
  late(1);
  const std::size_t before = resident_memory();
  late(messages);
  // Returns free memory inside the heap, which lies between other allocations.
  malloc_trim(0);
  const std::size_t after = resident_memory();
  if (kSanitizer) GTEST_SKIP() << "missing capability: memory that no sanitizer adds to";
  EXPECT_LE(after, before + kNear);
}

}  // namespace weft::testing
