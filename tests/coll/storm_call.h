// One call of a random program: any algorithm of the registry with any arguments, the memory of all
// ranks, and the expected result.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coll/reference.h"
#include "coll/schedule/algorithm.h"
#include "coll/schedules.h"
#include "support/jobs/simulate_job.h"

namespace weft::testing {

// Random choices by seed, the same on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15 + 1) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  bool chance(int percent) { return below(100) < static_cast<std::size_t>(percent); }
  double upto(double most) { return most * static_cast<double>(below(1000001)) / 1e6; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

 private:
  std::mt19937_64 random_;
};

class StormCall {
 public:
  // A random call on a communicator of this shape, with at most about most_bytes per rank.
  StormCall(Dice& dice, int communicator, Shape shape, std::size_t most_bytes) {
    const int n = shape.nranks;
    call_.communicator = communicator;
    shape.root = static_cast<Rank>(dice.below(static_cast<std::size_t>(n)));
    do {
      call_.algorithm = &algorithms()[dice.below(algorithms().size())];
    } while (!call_.algorithm->applies(shape));
    ask(shape);
    question_.type = kAllDTypes[dice.below(std::size(kAllDTypes))];
    do {
      question_.op = kAllRedOps[dice.below(std::size(kAllRedOps))];
    } while (!exact());
    question_.in_place = dice.chance(30);
    shift_ = dice.chance(20) ? 1 : 0;
    call_.deterministic = reduces(question_.collective) && dice.chance(20);
    std::size_t most = most_bytes / size_of(question_.type);
    if (by_blocks(question_.collective)) most = most / static_cast<std::size_t>(n) + 1;
    const auto some = [&] {
      return dice.chance(10) ? dice.below(3)
                             : 1 + dice.below(std::max<std::size_t>(1, most >> dice.below(12)));
    };
    question_.count = some();
    if (dice.chance(25) && takes_uneven_blocks()) {
      question_.counts.assign(static_cast<std::size_t>(n),
                              std::vector<std::size_t>(static_cast<std::size_t>(n)));
      for (std::size_t r = 0; r < question_.counts.size(); ++r)
        for (std::size_t s = 0; s < question_.counts.size(); ++s)
          // In place, a rank of an all_to_all receives from each rank as much as it sends to it.
          question_.counts[r][s] = question_.in_place && s < r ? question_.counts[s][r]
                                   : dice.chance(30)           ? 0
                                                               : some();
    }
    finish();
  }
  // A call of this algorithm with the given schedules.
  StormCall(const Algorithm& algorithm, std::vector<Schedule> schedules, const Shape& shape,
            DType type, RedOp op, std::size_t count, bool in_place) {
    call_.algorithm = &algorithm;
    call_.schedules = std::move(schedules);
    ask(shape);
    question_.type = type;
    question_.op = op;
    question_.count = count;
    question_.in_place = in_place;
    finish();
  }

  const SimCall& call() const { return call_; }
  std::string text() const {
    return fmt::format("{}: {}{}, communicator {}", full_name(*call_.algorithm), question_.words(),
                       call_.deterministic ? ", deterministic" : "", call_.communicator);
  }

  // Creates the memory of all ranks as before the call; call() points to it, so this object must
  // not move.
  void fill() {
    data_.clear();
    data_.reserve(static_cast<std::size_t>(question_.n));
    call_.in.clear();
    call_.out.clear();
    for (int r = 0; r < question_.n; ++r) {
      data_.emplace_back(question_, r, shift_);
      call_.in.push_back(data_.back().in);
      call_.out.push_back(data_.back().out);
    }
  }

  // An error in a rank's result, or empty.
  std::string wrong(std::size_t r) const { return data_[r].check(); }

  // Overwrites the result of a rank; marked() is true until something else is written.
  void mark(std::size_t r) { std::fill_n(data_[r].out, bytes_of(r), kMark); }
  bool marked(std::size_t r) const {
    return std::all_of(data_[r].out, data_[r].out + bytes_of(r),
                       [](std::byte b) { return b == kMark; });
  }

 private:
  static constexpr std::byte kMark{0xEE};

  void ask(const Shape& shape) {
    question_.collective = call_.algorithm->collective;
    question_.n = shape.nranks;
    question_.root = shape.root;
  }
  void finish() {
    call_.count = question_.count;
    call_.type = question_.type;
    call_.op = question_.reduction();
    call_.root = question_.root;
    call_.in_place = question_.in_place;
    call_.counts = question_.counts;
  }
  // Whether the reference is exact.
  bool exact() const {
    const bool whole = (question_.n & (question_.n - 1)) == 0;
    return defined(question_.op, question_.type) &&
           (question_.op != RedOp::kAvg || !is_floating(question_.type) || whole);
  }
  bool takes_uneven_blocks() const {
    return by_blocks(question_.collective) &&
           (question_.collective != Collective::kAllToAll || call_.algorithm->name == "pairwise");
  }
  std::size_t bytes_of(std::size_t r) const {
    return question_.out_elements(static_cast<int>(r)) * size_of(question_.type);
  }

  SimCall call_;
  Question question_;
  std::size_t shift_ = 0;
  std::vector<RankData> data_;  // refer to question_
};

}  // namespace weft::testing
