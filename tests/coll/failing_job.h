// Runs a job in which some processes fail. Every rank calls random collectives and checks each
// result. The test checks the error that ends every rank.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "coll/api/communicator.h"
#include "support/jobs/payload.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"

namespace weft::testing {

using std::chrono::milliseconds;

// Deadline of every call, and the timeout of a test.
inline constexpr milliseconds kTimeout{2000}, kHang{25000};

// A rank's report to the test.
struct Note {
  std::atomic<int> rounds;  // successful collectives
  std::atomic<bool> returned, threw, wrong, again_same;
  Code code;
  Rank blamed;
  char message[400];

  void set(Code c, Rank r, const std::string& text) {
    code = c;
    blamed = r;
    std::snprintf(message, sizeof message, "%s", text.c_str());
  }
};

struct Board {
  std::atomic<bool> finish;  // makes the ranks end normally
};

// Runs one round: a collective, a size and a kind of memory, drawn at random and equal on all
// ranks. Checks the result.
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
      return value(r + static_cast<int>(round % 5), i);
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
        Request recv = comm_.recv_async(out, count, DType::kInt32, (me + size - 1) % size);
        Request send = comm_.send_async(in, count, DType::kInt32, (me + 1) % size);
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
  std::int32_t *in_[2], *out_[2];  // freed by the process's exit
};

// Starts a job of processes, which run rounds until a failure or until `finish` is set.
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

  // Expects that every rank except the victim returned an error that names the victim.
  void expect_blamed(Rank victim) {
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
      EXPECT_TRUE(note.again_same) << "rank " << r << ": the next call tells something else";
    }
  }

 private:
  int be_a_rank(const Setting& s, const JobSpec& spec, unsigned seed, bool in_order) {
    Note& note = notes_[spec.rank];
    WorldOptions options;
    options.transport = s.transport;
    options.timeout = kTimeout;
    const Place place = places(s.hosts)[static_cast<std::size_t>(spec.rank)];
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
      const Status again = comm.barrier();
      note.again_same = again.code() == status.code() && again.rank() == status.rank() &&
                        again.message() == status.message();
    }
    note.returned = true;
    if (!in_order) _exit(0);  // like a program that calls exit() on an error
    return 0;
  }

  int n_;
  Shared<Note> notes_;
  Shared<Board> board_;
  Processes processes_;
};

}  // namespace weft::testing
