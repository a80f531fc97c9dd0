// Starts a job of processes that runs some all_reduces and then hangs, and runs `weft doctor` on
// this job.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "coll/api/communicator.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "support/process/shell.h"

namespace weft::testing {

using std::chrono::milliseconds;

inline constexpr milliseconds kHangLimit{30000};  // timeout of a test

struct HangNote {
  std::atomic<int> rounds;
  std::atomic<bool> stuck, returned;
  std::atomic<bool> seen;  // by the test, which then releases the rank
  Code code;
  Rank blamed;
  char message[900];
};
struct Switches {
  std::atomic<bool> free;  // releases stuck ranks
};

// A rank's call in the round that hangs; returns its status.
using Trouble = std::function<Status(World&, HangNote&)>;

// Runs some rounds of small and large all_reduces, then `trouble`.
class HangingJob {
 public:
  HangingJob(const Setting& s, int rounds, milliseconds deadline, const Trouble& trouble)
      : n_(static_cast<int>(places(s.hosts).size())),
        notes_(static_cast<std::size_t>(n_)),
        switches_(1),
        processes_(n_, milliseconds(10000), [&, deadline, rounds](const JobSpec& spec) {
          WorldOptions options;
          options.transport = s.transport;
          options.timeout = deadline;
          World world(connect(spec), places(s.hosts)[static_cast<std::size_t>(spec.rank)], options);
          HangNote& note = notes_[spec.rank];
          Communicator comm = world.world();
          std::vector<float> data(200000, 1), result(data.size());
          Status status;
          for (int i = 0; i < rounds && status.ok(); ++i) {
            status = comm.all_reduce(data.data(), result.data(), i % 3 ? 2 : data.size(),
                                     DType::kFloat32, RedOp::kSum);
            ++note.rounds;
          }
          if (status.ok()) status = trouble(world, note);
          note.code = status.code();
          note.blamed = status.rank();
          std::snprintf(note.message, sizeof note.message, "%s", status.message().c_str());
          note.returned = true;
          while (!status.ok() && !switches_[0].free) std::this_thread::sleep_for(milliseconds(1));
          return 0;
        }) {}

  HangNote& note(Rank r) { return notes_[r]; }
  Processes& processes() { return processes_; }
  int size() const { return n_; }
  void let_go() { switches_[0].free = true; }
  bool until(const std::function<bool()>& condition) {
    return Processes::wait_until(kHangLimit, condition);
  }
  bool all_returned_but(Rank victim) {
    return until([&] {
      for (Rank r = 0; r < n_; ++r)
        if (r != victim && !notes_[r].returned) return false;
      return true;
    });
  }
  bool stuck(Rank victim) {
    return until([&] { return notes_[victim].stuck.load(); });
  }

  // Checks the error of every rank but the victim.
  void expect(Rank victim, Code code, const std::string& pattern) {
    EXPECT_TRUE(all_returned_but(victim)) << "a rank hangs";
    for (Rank r = 0; r < n_; ++r) {
      if (r == victim) continue;
      EXPECT_EQ(notes_[r].code, code) << notes_[r].message;
      EXPECT_EQ(notes_[r].blamed, victim) << notes_[r].message;
      EXPECT_THAT(std::string(notes_[r].message), ::testing::ContainsRegex(pattern))
          << "rank " << r;
    }
  }

  // Runs `weft doctor`. The job must hang already.
  nlohmann::json doctor(Rank any) {
    const Output output = run(fmt::format("{} doctor --json --after-s 0.5 --pid {} 2>&1",
                                          WEFT_BINARY, processes_.pid(any)));
    const auto json = nlohmann::json::parse(output.text, nullptr, false);
    if (!json.is_array() || json.size() != 1) {
      ADD_FAILURE() << output.text;
      return {};
    }
    EXPECT_EQ(json[0]["schema"], "weft.doctor/1");
    EXPECT_EQ(output.exit_code, json[0]["critical"] == true ? 2 : 0);
    return json[0];
  }

 private:
  int n_;
  Shared<HangNote> notes_;
  Shared<Switches> switches_;
  Processes processes_;
};

}  // namespace weft::testing
