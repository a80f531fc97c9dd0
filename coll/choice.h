// Which algorithm `auto` runs: what the cost model says, corrected by what was measured.
//
// The times of a profile (profile.h) come before the model's. Beyond that a communicator tries,
// where a call of about the same size comes again and again: now and then one of the rivals runs
// instead of the pick, and when all have been timed often enough the ranks agree on the result, in
// one small all_reduce. Everything that decides is a number of calls or has been agreed upon, so
// that all ranks run the same algorithm in the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coll/cost.h"
#include "coll/profile.h"

namespace weft {

struct Candidate {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
  double measured_us = 0;  // by the profile; 0: not
};

// All that apply, the one to run first. Where the profile has the time of what the model picks, it
// is the fastest of those measured, if it is clearly faster; otherwise the model's pick. The rest by time: measured, else
// predicted.
std::vector<Candidate> candidates(Collective collective, const Shape& shape, std::size_t bytes,
                                  const CostModel& model, const Profile& profile);

// The trial of one communicator's calls of one collective in one size class. Not thread-safe.
class Trial {
 public:
  // Calls before the first trial; one call in kEvery is a rival's, until each has kSamples; the
  // rival must win by this factor, or all stays as it was. The next trial: after kAgain times as
  // many calls.
  static constexpr std::uint64_t kBefore = 32, kBeforeMeasured = 1024, kEvery = 8, kAgain = 8;
  static constexpr std::size_t kSamples = 5;
  static constexpr double kGain = 0.9;
  // Rivals that are tried: as many at most, if the model gives them no more than kRival times the
  // time of the pick.
  static constexpr std::size_t kRivals = 3;
  static constexpr double kRival = 2;

  explicit Trial(const std::vector<Candidate>& candidates);

  // The algorithm of the next call. Every call counts, on every rank.
  const Algorithm* next();
  // Calls are timed now: pass the time to took().
  bool wants_time() const { return trying_; }
  void took(const Algorithm* algorithm, double us);
  // A call whose time says nothing, as it was not waited for: this rank will be against a change.
  void not_timed() { against_ = true; }

  // All have been tried: the ranks must agree, by the maximum of what they testify. Equal on all
  // ranks.
  bool due() const { return due_; }
  // A time for each algorithm that was tried, then 1 if this rank is against a change.
  std::vector<double> testimony() const;
  // True: another algorithm runs from now on.
  bool decide(std::span<const double> agreed);

  const Algorithm* current() const { return tried_[current_].algorithm; }
  // What was agreed at last, by algorithm; 0: nothing.
  struct Agreed {
    const Algorithm* algorithm;
    double us;
  };
  std::vector<Agreed> agreed() const;

 private:
  struct Tried {
    const Algorithm* algorithm;
    std::vector<double> us;
    std::size_t calls = 0;  // in this trial
    double agreed_us = 0;
  };
  std::vector<Tried> tried_;
  std::size_t current_ = 0;
  std::uint64_t calls_ = 0, begins_;
  bool trying_ = false, due_ = false, against_ = false;
};

}  // namespace weft
