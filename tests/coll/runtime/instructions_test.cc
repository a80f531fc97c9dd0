// Counts the instructions of a rank for an all_reduce of 8 bytes between hosts, by callgrind: over
// verbs on the fake device and over tcp on loopback, on one rail and on two; and those of its
// transport alone, for the same message each way. One thread plays both ranks in turns.
// labels: multiproc
// ctest: alone
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/fakes/fake_verbs.h"
#include "support/jobs/communicator_inside.h"
#include "support/process/sanitizer.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "topo/base/mutex.h"
#include "transport/job/bootstrap.h"
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define WEFT_COUNTS
#else
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(what)
#define CALLGRIND_START_INSTRUMENTATION
#endif

namespace weft::testing {
namespace {

constexpr int kRanks = 2;
constexpr int kRounds = 256;  // a multiple of what windows and rings of slots hold

// What is counted, and the recorded instructions of a rank for each operation.
struct Counted {
  const char* name;
  const char* transport;
  int rails;
  bool alone;  // the transport without the collective
  double recorded;
};

constexpr Counted kCounted[] = {
    {"VerbsOneRail", "verbs", 1, false, 4505},     {"VerbsTwoRails", "verbs", 2, false, 6255},
    {"TcpOneRail", "tcp", 1, false, 4375},         {"TcpTwoRails", "tcp", 2, false, 6270},
    {"VerbsAloneOneRail", "verbs", 1, true, 1320}, {"VerbsAloneTwoRails", "verbs", 2, true, 2870},
    {"TcpAloneOneRail", "tcp", 1, true, 1190},     {"TcpAloneTwoRails", "tcp", 2, true, 2890},
};

Place place_of(const Counted& what, int rank) {
  Place place;
  place.host = place.machine = "host" + std::to_string(rank);
  Nic nic;
  nic.name = nic.netdev = "lo";
  nic.address = "127.0.0.1";
  nic.up = true;
  if (what.transport == std::string_view("verbs")) {
    nic.name = "fake";
    nic.rdma = true;
  }
  place.rails.assign(static_cast<std::size_t>(what.rails), nic);
  return place;
}

std::vector<std::unique_ptr<World>> worlds(const Counted& what) {
  WorldOptions options;
  options.transport = what.transport;
  options.rail_gbps = 10;
  options.timeout = std::chrono::seconds(120);
  auto jobs = local_jobs(kRanks);
  std::vector<std::unique_ptr<World>> made(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      made[r] =
          std::make_unique<World>(std::move(jobs[r]), place_of(what, static_cast<int>(r)), options);
    });
  for (std::thread& t : threads) t.join();
  return made;
}

// Both ranks of this thread, in turns.
class Ranks {
 public:
  explicit Ranks(const Counted& what) : worlds_(worlds(what)) {
    for (auto& world : worlds_) comms_.push_back(world->world());
  }
  void poll() {
    ++polls_;
    for (Communicator& comm : comms_) {
      Core& core = *CommunicatorInside::of(comm).core;
      const CoreLock lock(core.mutex);
      core.progress();
    }
  }
  int polls() const { return polls_; }
  // What a rank's transport does for an all_reduce: a send, a receive and the polls for both.
  void exchange() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    double in[kRanks] = {1, 2}, out[kRanks] = {};
    Head head{.sign = ++exchanges_};
    std::size_t open = 0;
    for (std::size_t r = 0; r < kRanks; ++r) {
      Transfer both[2];
      both[0].kind = Transfer::Kind::kSend;
      both[0].data = &in[r];
      both[1].kind = Transfer::Kind::kRecv;
      both[1].data = &out[r];
      for (Transfer& t : both) {
        t.peer = static_cast<Rank>(1 - r);
        t.tag = std::uint64_t{1} << 62 | exchanges_ << 24;
        t.bytes = sizeof(double);
        t.id = std::uint64_t{1} << 60 | open++;
        t.head = &head;
      }
      rail(r).post(both);
    }
    Completion done[4];
    for (; open > 0; ++polls_)
      for (std::size_t r = 0; r < kRanks; ++r) open -= rail(r).poll(done);
    if (out[0] != 2 || out[1] != 1) std::abort();
  }
  void poll_rails() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    Completion done[4];
    for (std::size_t r = 0; r < kRanks; ++r) (void)rail(r).poll(done);
  }
  void all_reduce() {
    double in[kRanks] = {1, 2}, out[kRanks] = {};
    Request requests[kRanks];
    for (std::size_t r = 0; r < kRanks; ++r)
      requests[r] = comms_[r].all_reduce_async(&in[r], &out[r], 1, DType::kFloat64, RedOp::kSum);
    while (!over(0) || !over(1)) poll();
    for (std::size_t r = 0; r < kRanks; ++r) {
      requests[r].wait().check();
      if (out[r] != 3) std::abort();
    }
  }

 private:
  // Without the lock, which would be counted: this thread is the only one.
  bool over(std::size_t r) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    return CommunicatorInside::of(comms_[r]).core->tasks.empty();
  }

  // The transport on which the two ranks meet.
  Transport& rail(std::size_t r) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    const Core& core = *CommunicatorInside::of(comms_[r]).core;
    return *core.links[static_cast<std::size_t>(core.link_of(0, 1))];
  }

  std::vector<std::unique_ptr<World>> worlds_;
  std::vector<Communicator> comms_;
  int polls_ = 0;
  std::uint64_t exchanges_ = 0;
};

double totals(const std::string& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("totals: ")) return std::stod(line.substr(8));
  ADD_FAILURE() << "callgrind left no totals in " << file;
  return 0;
}

// Runs what is counted, under callgrind: the operations, then polls that find nothing. Prints how
// many polls the operations took.
void play(const Counted& what) {
  FakeVerbs::get().wired = true;
  setenv("WEFT_TCP_DATAGRAMS", "0", 1);  // which messages go as datagrams depends on time
  Ranks ranks(what);
  const auto once = [&] { what.alone ? ranks.exchange() : ranks.all_reduce(); };
  for (int i = 0; i < 100; ++i) once();
  CALLGRIND_START_INSTRUMENTATION;
  for (int i = 0; i < 3; ++i) once();
  const int before = ranks.polls();
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < kRounds; ++i) once();
  CALLGRIND_DUMP_STATS_AT("all_reduce");
  std::printf("polls: %d\n", ranks.polls() - before);
  std::fflush(stdout);
  for (int i = 0; i < kRounds; ++i) what.alone ? ranks.poll_rails() : ranks.poll();
  CALLGRIND_DUMP_STATS_AT("poll");
  std::_Exit(0);  // the end of a World takes its time
}

// Instructions of a rank for each operation beyond those of polls that find nothing, of which it
// takes more or fewer.
double count(const Counted& what, int index) {
  const TemporaryFolder folder;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const Output output =
      // --toggle-collect has callgrind begin without counting, until the option after it.
      run(fmt::format("valgrind --tool=callgrind --instr-atstart=no "
                      "--toggle-collect='*FakeVerbs::ops_*' --collect-atstart=yes "
                      "--callgrind-out-file={} {} --count {}",
                      folder / "out", self, index));
  EXPECT_EQ(output.exit_code, 0) << what.name << ": " << output.text;
  const std::size_t polls = output.text.find("polls: ");
  if (polls == std::string::npos) throw std::runtime_error(output.text);
  const double idle = totals(folder / "out.2") / kRounds;
  const double both = totals(folder / "out.1") - std::stod(output.text.substr(polls + 7)) * idle;
  return both / kRounds / kRanks;
}

class Instructions : public ::testing::TestWithParam<int> {};

TEST_P(Instructions, DoNotGrow) {
#ifndef WEFT_COUNTS
  GTEST_SKIP() << "missing capability: valgrind (its headers, when this was built)";
#endif
  if (run("valgrind --version").exit_code != 0) GTEST_SKIP() << "missing capability: valgrind";
  if (kSanitizer) GTEST_SKIP() << "missing capability: a build without sanitizers";
  const Counted& what = kCounted[GetParam()];
  const double counted = count(what, GetParam());
  RecordProperty("instructions", std::to_string(static_cast<int>(counted)));
  EXPECT_GT(counted, 0);
  EXPECT_LE(counted, 1.1 * what.recorded) << "instructions of a rank for each all_reduce";
  // The target is 1,500 on one rail and 2,000 on two. Who comes nearer records it.
  EXPECT_GE(counted, 0.8 * what.recorded) << "better than recorded: record it in kCounted";
}

INSTANTIATE_TEST_SUITE_P(Of, Instructions,
                         ::testing::Range(0, static_cast<int>(std::size(kCounted))),
                         [](const auto& info) { return std::string(kCounted[info.param].name); });

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  using namespace weft::testing;
  if (argc == 3 && std::string_view(argv[1]) == "--count") {
    play(kCounted[std::atoi(argv[2])]);
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
