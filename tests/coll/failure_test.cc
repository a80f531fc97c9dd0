// labels: multiproc
// ctest: whole
// Ranks that die, stop, or go their own way at a random moment: every other rank gets an error
// that names them, before its deadline and a margin, and nobody ever sees wrong data.
//
// WEFT_TEST_SEED repeats a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "coll/communicator.h"
#include "support/payload.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/setting.h"
#include "transport/ucx.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::Processes;
using testing::Shared;
using testing::Setting;
using testing::ranks_of;
using testing::seed;
using Clock = std::chrono::steady_clock;

// The deadline of every call; what an error may take beyond it, on a machine with other work; and
// when a test gives up.
constexpr milliseconds kTimeout{2000}, kMargin{5000}, kHang{25000};

// What a rank tells the test.
struct Note {
  std::atomic<int> rounds;  // of collectives that went well
  std::atomic<bool> returned, threw, wrong, again_same;
  Clock::time_point at;
  milliseconds again_took;
  Code code;
  Rank blamed;
  char message[400];

  void set(Code c, Rank r, const std::string& text) {
    at = Clock::now();
    code = c;
    blamed = r;
    std::snprintf(message, sizeof message, "%s", text.c_str());
  }
};

struct Board {
  std::atomic<bool> finish;  // the ranks are to end in good order
};

// One round: a collective of random kind, size and memory, the same on every rank, checked.
class Rounds {
 public:
  Rounds(Communicator comm, unsigned seed) : comm_(std::move(comm)), random_(seed) {
    for (const bool shared : {false, true}) {
      in_[shared] = static_cast<std::int32_t*>(shared ? alloc(kBytes) : std::malloc(kBytes));
      out_[shared] = static_cast<std::int32_t*>(shared ? alloc(kBytes) : std::malloc(kBytes));
    }
  }

  Status next(bool& wrong) {
    const auto n = static_cast<std::size_t>(comm_.size());
    const std::size_t round = round_++;
    const auto kind = random_() % 6;
    const std::size_t most = kBytes / 4 / n;
    const unsigned bits = random_() % 19;
    const std::size_t count = std::min<std::size_t>(most, 1 + (random_() & ((1u << bits) - 1)));
    const bool shared = random_() % 2;
    const Rank root = static_cast<Rank>(random_() % n), me = comm_.rank();
    std::int32_t *in = in_[shared], *out = out_[shared];
    const auto mine = [&](Rank r, std::size_t i) {
      return testing::value(r + static_cast<int>(round % 5), i);
    };
    const std::size_t given = kind == 2 ? count * n : count;
    for (std::size_t i = 0; i < given; ++i) in[i] = mine(me, i);
    Status s;
    switch (kind) {
      case 0:
        s = comm_.all_reduce(in, out, count, DType::kInt32, RedOp::kSum);
        break;
      case 1:
        s = comm_.all_gather(in, out, count, DType::kInt32);
        break;
      case 2:
        s = comm_.reduce_scatter(in, out, count, DType::kInt32, RedOp::kSum);
        break;
      case 3:
        s = comm_.broadcast(in, out, count, DType::kInt32, root);
        break;
      case 4: {
        const int size = comm_.size();
        Handle recv = comm_.recv_async(out, count, DType::kInt32, (me + size - 1) % size);
        Handle send = comm_.send_async(in, count, DType::kInt32, (me + 1) % size);
        s = recv.wait();
        const Status sent = send.wait();
        if (s.ok()) s = sent;
        break;
      }
      default:
        return comm_.barrier();
    }
    if (!s.ok()) return s;
    const std::size_t got = kind == 1 ? count * n : count;
    for (std::size_t i = 0; i < got; ++i) {
      std::int32_t want = 0;
      if (kind == 0 || kind == 2) {
        const std::size_t at = kind == 2 ? static_cast<std::size_t>(me) * count + i : i;
        for (Rank r = 0; r < comm_.size(); ++r) want += mine(r, at);
      } else if (kind == 1) {
        want = mine(static_cast<Rank>(i / count), i % count);
      } else {
        want = mine(kind == 3 ? root : (me + comm_.size() - 1) % comm_.size(), i);
      }
      if (out[i] == want) continue;
      std::printf("rank %d: wrong: kind %d (%s), round %zu: element %zu of %zu is %d, not %d\n", me,
                  static_cast<int>(kind), comm_.last_algorithm().c_str(), round, i, got, out[i],
                  want);
      wrong = true;
      break;
    }
    return {};
  }

 private:
  static constexpr std::size_t kBytes = 1u << 20;
  Communicator comm_;
  std::mt19937 random_;
  std::size_t round_ = 0;
  std::int32_t *in_[2], *out_[2];  // gone with the process
};

// A job of processes that do rounds until something fails or `finish` is set.
class Workload {
 public:
  Workload(const Setting& s, unsigned seed, bool in_order,
           milliseconds rendezvous = milliseconds(10000))
      : n_(ranks_of(s)),
        notes_(static_cast<std::size_t>(n_)),
        board_(1),
        processes_(n_, rendezvous, [&, seed, in_order](const JobSpec& spec) {
          return be_a_rank(s, spec, seed, in_order);
        }) {}

  Note& note(Rank r) { return notes_[r]; }
  Processes& processes() { return processes_; }
  int size() const { return n_; }
  void finish() { board_[0].finish = true; }

  bool started(int rounds = 5) {
    return Processes::wait_until(kHang, [&] {
      for (Rank r = 0; r < n_; ++r)
        if (notes_[r].rounds < rounds) return false;
      return true;
    });
  }

  // Every rank but the victim has returned an error that names it, in time.
  void expect_blamed(Rank victim, Clock::time_point since) {
    EXPECT_TRUE(processes_.wait(kHang, victim)) << "a rank hangs";
    for (Rank r = 0; r < n_; ++r) {
      if (r == victim) continue;
      Note& note = notes_[r];
      EXPECT_EQ(processes_.code(r), 0) << "how rank " << r << " ended";
      EXPECT_FALSE(note.wrong) << "rank " << r << " got wrong data";
      if (!note.returned) {
        ADD_FAILURE() << "rank " << r << " did not return";
        continue;
      }
      EXPECT_NE(note.code, Code::kOk) << "rank " << r;
      EXPECT_EQ(note.blamed, victim) << "rank " << r << ": " << note.message;
      EXPECT_NE(std::string(note.message).find(fmt::format("rank {}", victim)), std::string::npos)
          << "rank " << r << ": " << note.message;
      EXPECT_LE(note.at - since, kTimeout + kMargin) << "rank " << r;
      EXPECT_TRUE(note.again_same) << "rank " << r << ": the next call tells something else";
      EXPECT_LT(note.again_took, kTimeout) << "rank " << r << " waited again";
    }
  }

 private:
  int be_a_rank(const Setting& s, const JobSpec& spec, unsigned seed, bool in_order) {
    Note& note = notes_[spec.rank];
    WorldOptions options;
    options.transport = s.transport;
    options.timeout = kTimeout;
    const Place place = testing::places(s.hosts)[static_cast<std::size_t>(spec.rank)];
    std::unique_ptr<World> world;
    try {
      world = std::make_unique<World>(connect(spec), place, options);
    } catch (const Error& e) {
      note.set(Code::kPeerFailed, kNoRank, e.what());
      note.threw = true;
      return 0;
    }
    Communicator comm = world->world();
    Rounds rounds(comm, seed);
    bool wrong = false;
    Status status;
    for (;;) {
      std::int32_t finish = board_[0].finish, any = 0;
      status = comm.all_reduce(&finish, &any, 1, DType::kInt32, RedOp::kMax);
      if (!status.ok() || any) break;
      status = rounds.next(wrong);
      if (wrong) note.wrong = true;
      if (!status.ok()) break;
      ++note.rounds;
    }
    if (!status.ok()) {
      note.set(status.code(), status.rank(), status.message());
      const auto from = Clock::now();
      const Status again = comm.barrier();
      note.again_took = std::chrono::duration_cast<milliseconds>(Clock::now() - from);
      note.again_same = again.code() == status.code() && again.rank() == status.rank() &&
                        again.message() == status.message();
    }
    note.returned = true;
    if (!in_order) _exit(0);  // as a program does that calls exit() on an error
    return 0;
  }

  int n_;
  Shared<Note> notes_;
  Shared<Board> board_;
  Processes processes_;
};

std::set<std::string> names_in_dev_shm() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().string().find("weft") != std::string::npos) names.insert(entry.path());
  return names;
}

// What is mapped under a name there outlives the process that is killed.
bool maps_dev_shm(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);)
    if (line.find("/dev/shm/") != std::string::npos) return true;
  return false;
}

class Failure : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    const Setting& s = GetParam();
    const bool ucx = s.hosts.size() > 1 || std::string(s.transport) == "ucx";
    if (ucx && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
    random_.seed(seed());
  }
  void pause(int most_ms) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(random_() % (1000u * static_cast<unsigned>(most_ms))));
  }
  Rank any_rank(int n) { return static_cast<Rank>(random_() % static_cast<unsigned>(n)); }

  void hit(int signal, Rank victim, bool in_order) {
    Workload job(GetParam(), random_(), in_order);
    ASSERT_TRUE(job.started());
    pause(60);
    const auto since = Clock::now();
    job.processes().signal(victim, signal);
    job.expect_blamed(victim, since);
  }

  std::mt19937 random_;
};

TEST_P(Failure, AKilledRankIsNamedByAllOthers) {
  const int n = ranks_of(GetParam());
  for (const Rank victim : {Rank{0}, any_rank(n)})
    for (const bool in_order : {false, true}) {
      SCOPED_TRACE(fmt::format("victim {}{}", victim, in_order ? ", the others end in order" : ""));
      hit(SIGKILL, victim, in_order);
      if (HasFatalFailure()) return;
    }
}

TEST_P(Failure, AStoppedRankIsNamedByAllOthers) {
  const int n = ranks_of(GetParam());
  const Rank victim = random_() % 2 ? 0 : any_rank(n);
  SCOPED_TRACE(fmt::format("victim {}", victim));
  hit(SIGSTOP, victim, random_() % 2);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Failure,
    ::testing::Values(Setting{"shm2", {2}, "auto"}, Setting{"shm3", {3}, "auto"},
                      Setting{"shm4", {4}, "auto"}, Setting{"shm8", {8}, "auto"},
                      Setting{"ucx2", {2}, "ucx"}, Setting{"ucx3", {3}, "ucx"},
                      Setting{"ucx4", {4}, "ucx"}, Setting{"mixed2x2", {2, 2}, "auto"},
                      Setting{"mixed4x2", {2, 2, 2, 2}, "auto"}),
    [](const auto& info) { return std::string(info.param.name); });

class Interruption : public Failure {};

// Stopped for less than the deadline: nobody may take it for dead.
TEST_P(Interruption, AShortStopIsNoFailure) {
  Workload job(GetParam(), random_(), true);
  ASSERT_TRUE(job.started());
  const Rank last = job.size() - 1;
  for (const Rank victim : {Rank{0}, last}) {
    job.processes().signal(victim, SIGSTOP);
    std::this_thread::sleep_for(kTimeout / 2);
    job.processes().signal(victim, SIGCONT);
    const int before = job.note(last).rounds;
    EXPECT_TRUE(Processes::wait_until(kHang, [&] { return job.note(last).rounds > before + 5; }))
        << job.note(last).message;
  }
  job.finish();
  EXPECT_TRUE(job.processes().wait(kHang));
  for (Rank r = 0; r < job.size(); ++r) {
    EXPECT_EQ(job.processes().code(r), 0);
    EXPECT_EQ(job.note(r).code, Code::kOk) << job.note(r).message;
    EXPECT_FALSE(job.note(r).wrong);
  }
}

// Ctrl-Z and fg: all ranks stop for longer than the deadline.
TEST_P(Interruption, ALongStopOfAllRanksIsNoFailure) {
  Workload job(GetParam(), random_(), true);
  ASSERT_TRUE(job.started());
  for (Rank r = 0; r < job.size(); ++r) job.processes().signal(r, SIGSTOP);
  std::this_thread::sleep_for(kTimeout * 5 / 4);
  for (Rank r = 0; r < job.size(); ++r) job.processes().signal(r, SIGCONT);
  const int before = job.note(0).rounds;
  EXPECT_TRUE(Processes::wait_until(kHang, [&] { return job.note(0).rounds > before + 5; }))
      << job.note(0).message;
  job.finish();
  EXPECT_TRUE(job.processes().wait(kHang));
  for (Rank r = 0; r < job.size(); ++r) {
    EXPECT_EQ(job.processes().code(r), 0);
    EXPECT_EQ(job.note(r).code, Code::kOk) << job.note(r).message;
  }
}

// At any moment from the first line on: the constructor throws, or a collective fails.
TEST_P(Interruption, KilledWhileTheJobAssembles) {
  for (int i = 0; i < 4; ++i) {
    Workload job(GetParam(), random_(), true, milliseconds(3000));
    const Rank victim = any_rank(job.size());
    SCOPED_TRACE(fmt::format("victim {}", victim));
    pause(120);
    job.processes().signal(victim, SIGKILL);
    EXPECT_TRUE(job.processes().wait(kHang, victim)) << "a rank hangs";
    for (Rank r = 0; r < job.size(); ++r) {
      if (r == victim) continue;
      EXPECT_EQ(job.processes().code(r), 0) << "rank " << r;
      EXPECT_TRUE(job.note(r).threw || job.note(r).returned) << "rank " << r;
      EXPECT_NE(job.note(r).code, Code::kOk) << "rank " << r;
      EXPECT_NE(std::string(job.note(r).message).find(fmt::format("{}", victim)), std::string::npos)
          << "rank " << r << ": " << job.note(r).message;
    }
  }
}

// Nothing is left when there is nobody to clean up.
TEST_P(Interruption, AllKilledAtOnceLeaveNothing) {
  const auto before = names_in_dev_shm();
  {
    Workload job(GetParam(), random_(), true);
    ASSERT_TRUE(job.started());
    for (Rank r = 0; r < job.size(); ++r)
      EXPECT_FALSE(maps_dev_shm(job.processes().pid(r))) << "rank " << r;
    for (Rank r = 0; r < job.size(); ++r) job.processes().signal(r, SIGKILL);
    EXPECT_TRUE(job.processes().wait(kHang));
  }
  for (const std::string& name : names_in_dev_shm())
    EXPECT_TRUE(before.contains(name)) << name << " is left";
}

INSTANTIATE_TEST_SUITE_P(Settings, Interruption,
                         ::testing::Values(Setting{"shm3", {3}, "auto"},
                                           Setting{"ucx2", {2}, "ucx"},
                                           Setting{"mixed2x2", {2, 2}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Ranks that call different things. Runs call(comm) on every rank and collects what they got.
void diverge(const Setting& s, const std::function<Status(Communicator&)>& call,
             const std::function<void(Rank, const Note&)>& check) {
  const int n = ranks_of(s);
  Shared<Note> notes(static_cast<std::size_t>(n));
  Processes processes(n, milliseconds(10000), [&](const JobSpec& spec) {
    WorldOptions options;
    options.transport = s.transport;
    options.timeout = kTimeout / 2;
    World world(connect(spec), testing::places(s.hosts)[static_cast<std::size_t>(spec.rank)],
                options);
    Communicator comm = world.world();
    const Status status = call(comm);
    notes[spec.rank].set(status.code(), status.rank(), status.message());
    notes[spec.rank].returned = true;
    return 0;
  });
  EXPECT_TRUE(processes.wait(kHang)) << "a rank hangs";
  for (Rank r = 0; r < n; ++r) {
    EXPECT_TRUE(notes[r].returned) << "rank " << r;
    check(r, notes[r]);
  }
}

const Setting kDivergent[] = {{"shm3", {3}, "auto"}, {"ucx3", {3}, "ucx"}};

TEST(Divergence, ARankThatDoesNotCallIsNamed) {
  for (const Setting& s : kDivergent) {
    if (std::string(s.transport) == "ucx" && !ucx_available()) continue;
    SCOPED_TRACE(s.name);
    for (const std::size_t count : {1ul, 300000ul})
      diverge(
          s,
          [count](Communicator& comm) -> Status {
            std::vector<float> data(count, 1);
            if (comm.rank() == 1) {  // busy with something else, but alive
              std::this_thread::sleep_for(kTimeout);
              return {};
            }
            return comm.all_reduce(data.data(), data.data(), count, DType::kFloat32, RedOp::kSum);
          },
          [](Rank r, const Note& note) {
            if (r == 1) return;
            EXPECT_EQ(note.code, Code::kTimeout) << "rank " << r << ": " << note.message;
            EXPECT_NE(note.blamed, kNoRank) << "rank " << r << ": " << note.message;
          });
  }
}

TEST(Divergence, DifferentCountsEndInAnError) {
  for (const Setting& s : kDivergent) {
    if (std::string(s.transport) == "ucx" && !ucx_available()) continue;
    SCOPED_TRACE(s.name);
    for (const std::size_t count : {300000ul, 5000000ul})
      diverge(
          s,
          [count](Communicator& comm) {
            const std::size_t mine = comm.rank() == 1 ? count / 2 : count;
            std::vector<float> data(mine, 1), result(mine);
            Status s =
                comm.all_reduce(data.data(), result.data(), mine, DType::kFloat32, RedOp::kSum);
            if (s.ok()) s = comm.barrier();  // who got through hears of the others here
            return s;
          },
          [](Rank r, const Note& note) {
            EXPECT_NE(note.code, Code::kOk) << "rank " << r;
            EXPECT_NE(note.blamed, kNoRank) << "rank " << r << ": " << note.message;
          });
  }
}

}  // namespace
}  // namespace weft
