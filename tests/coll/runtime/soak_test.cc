// A long job: sixty thousand small all-reduces, five thousand communicators created and destroyed.
// Memory, mappings, files and names in /dev/shm must not grow after the first few turns. A leak of
// 32 bytes per small all-reduce is three times the limit.
//
//   WEFT_SOAK_SHARE=5 coll_multiproc_tests --gtest_filter=Soak.*    five times as many turns
// labels: multiproc
// sanitize: long
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/process/sanitizer.h"
#include "topo/discover.h"

namespace weft {
namespace {

using testing::Processes;
using testing::Shared;

struct Holding {
  long memory_kib, mappings, files, names;
  char file_list[1500];  // targets of the file descriptors
};

// Counts only weft's names: jobs of other programs (mpirun) come and go.
long names_in_dev_shm() {
  return std::ranges::count_if(
      std::filesystem::directory_iterator("/dev/shm"), [](const auto& entry) {
        return entry.path().filename().string().find("weft") != std::string::npos;
      });
}

Holding holding() {
  malloc_trim(0);  // free memory does not count
  Holding now{};
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    for (const std::string field : {"RssAnon:", "RssShmem:"})  // code pages loaded late are no leak
      if (line.starts_with(field)) now.memory_kib += std::atol(line.c_str() + field.size());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  std::string list;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(fd.path(), gone).string();
    list += fmt::format(" {}={}", fd.path().filename().string(), target);
    // A call of `weft doctor` leaves this file open until the next call on this machine.
    if (target.find("weft-answer") == std::string::npos) ++now.files;
  }
  fmt::format_to_n(now.file_list, sizeof now.file_list - 1, "{}", list);
  now.names = names_in_dev_shm();
  return now;
}

// Samples after a tenth of the turns, then after each third of the rest.
constexpr long kThirds = 3;
struct Report {
  std::atomic<long> turns;  // completed
  Holding looks[kThirds + 1];
  std::int64_t wrong;
  char error[512];
};

long share_of(long whole) {
  const char* text = std::getenv("WEFT_SOAK_SHARE");
  const double usual = testing::kSanitizer ? 0.02 : 1;
  return std::max(100L,
                  static_cast<long>(static_cast<double>(whole) * (text ? std::atof(text) : usual)));
}

// The turns of each rank, for the log: "12000, 12001, 12000".
std::string turns_of(Shared<Report>& reports, int n) {
  std::string text;
  for (Rank r = 0; r < n; ++r) text += fmt::format("{}{}", r ? ", " : "", reports[r].turns.load());
  return text;
}

// Waits without a time limit until all ranks have ended, and prints their progress every 30 s.
// Fails if no rank makes a turn in two minutes.
void wait_while_it_goes_on(Processes& processes, Shared<Report>& reports, int n) {
  constexpr int kLooksWithoutATurn = 4;
  std::string before;
  for (int same = 0; !processes.wait(std::chrono::seconds(30));) {
    const std::string now = turns_of(reports, n);
    fmt::print(stderr, "turns of the ranks: {}\n", now);
    same = now == before ? same + 1 : 0;
    ASSERT_LT(same, kLooksWithoutATurn) << "a rank hangs; turns of the ranks: " << now;
    before = now;
  }
}

// turn(comm, i) for each i on every rank; the first tenth precedes the first sample.
void soak(const std::vector<int>& hosts, const char* transport, long turns,
          const std::function<bool(Communicator&, long)>& turn) {
  const auto where = testing::places(hosts);
  const int n = static_cast<int>(where.size());
  Shared<Report> reports(static_cast<std::size_t>(n));
  Processes processes(n, std::chrono::seconds(30), [&](const JobSpec& spec) {
    Report& report = reports[spec.rank];
    try {
      WorldOptions options;
      options.transport = transport;
      World world(connect(spec), where[static_cast<std::size_t>(spec.rank)], options);
      Communicator comm = world.world();
      for (long i = 0, look = 0; i < turns; ++i) {
        const long before = turns / 10, third = (turns - before) / kThirds;
        if (look < kThirds && i == before + look * third) report.looks[look++] = holding();
        report.wrong += !turn(comm, i);
        report.turns.store(i + 1, std::memory_order_relaxed);
      }
      report.looks[kThirds] = holding();
    } catch (const std::exception& e) {
      fmt::format_to_n(report.error, sizeof report.error - 1, "{}", e.what());
    }
    return 0;
  });
  wait_while_it_goes_on(processes, reports, n);
  if (::testing::Test::HasFatalFailure()) return;
  for (Rank r = 0; r < n; ++r) {
    const auto& [turns_done, looks, wrong, error] = reports[r];
    const auto& first = looks[0];
    const auto& last = looks[kThirds];
    // A leak grows in every third. A pool (UCX takes 560 KiB at a time, scratch a file) grows only
    // when the number of pending messages reaches a new maximum.
    long growth = last.memory_kib, more_files = last.files;
    for (long t = 0; t < kThirds; ++t) {
      growth = std::min(growth, looks[t + 1].memory_kib - looks[t].memory_kib);
      more_files = std::min(more_files, looks[t + 1].files - looks[t].files);
    }
    EXPECT_STREQ(error, "") << "rank " << r;
    EXPECT_EQ(wrong, 0) << "rank " << r;
    EXPECT_EQ(turns_done.load(), turns) << "rank " << r;
    if (!testing::kSanitizer) {
      EXPECT_LE(growth, 512 / kThirds) << "KiB in each third, rank " << r;
      EXPECT_LE(last.memory_kib - first.memory_kib, 8 << 10) << "KiB in all, rank " << r;
      EXPECT_LE(last.mappings, first.mappings + 2) << "rank " << r;
    }
    EXPECT_LE(more_files, 0) << "more in each third, rank " << r << ", first" << first.file_list
                             << "\nlast" << last.file_list;
    EXPECT_LE(last.names, first.names) << "in /dev/shm, rank " << r;
    if (r == 0)
      fmt::print("{} turns: {} KiB, {} mappings, {} files; at the end {}, {}, {}\n", turns,
                 first.memory_kib, first.mappings, first.files, last.memory_kib, last.mappings,
                 last.files);
  }
}

bool all_reduce_is_right(Communicator& comm, long i, std::size_t count = 1) {
  std::vector<std::int64_t> in(count, i + comm.rank()), out(count);
  comm.all_reduce(in.data(), out.data(), count, DType::kInt64, RedOp::kSum).check();
  const std::int64_t n = comm.size(), want = n * i + n * (n - 1) / 2;
  return std::ranges::all_of(out, [&](std::int64_t v) { return v == want; });
}

TEST(Soak, SmallAllReduces) {
  soak({4}, "auto", share_of(60000),
       [](Communicator& comm, long i) { return all_reduce_is_right(comm, i); });
}

// Too large for the board: uses plans, runs, slots and rings.
TEST(Soak, MiddlingAllReducesInSharedMemory) {
  soak({3}, "auto", share_of(8000),
       [](Communicator& comm, long i) { return all_reduce_is_right(comm, i, 20000); });
}

TEST(Soak, AllReducesOverTheNetwork) {
  soak({1, 1}, "auto", share_of(8000),
       [](Communicator& comm, long i) { return all_reduce_is_right(comm, i, 1 + i % 3000); });
}

TEST(Soak, ThousandsOfCommunicators) {
  soak({4}, "auto", share_of(5000), [](Communicator& comm, long i) {
    Communicator other = i % 3 == 0   ? comm.duplicate()
                         : i % 3 == 1 ? comm.split(comm.rank() % 2, comm.rank())
                                      : comm.split(i % 2 ? comm.rank() : 0, -comm.rank());
    return all_reduce_is_right(other, i) && (i % 10 || all_reduce_is_right(other, i, 10000));
  });
}

TEST(Soak, CommunicatorsOverTheNetwork) {
  soak({2, 1}, "auto", share_of(1000), [](Communicator& comm, long i) {
    Communicator other = i % 2 ? comm.duplicate() : comm.split(comm.rank() / 2);
    return all_reduce_is_right(other, i, 1 + i * 37 % 5000);
  });
}

}  // namespace
}  // namespace weft
