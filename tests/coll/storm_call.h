// One call of a random program: any algorithm of the registry with any arguments, the memory of all
// ranks, and what must be in it at the end.
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

#include "coll/algorithm.h"
#include "coll/schedules.h"
#include "coll/simulate_job.h"
#include "support/payload.h"

namespace weft::testing {

// Choices by a seed, the same on every machine.
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
  // For a communicator of this shape; at most so many bytes per rank.
  StormCall(Dice& dice, int communicator, Shape shape, std::size_t most_bytes)
      : nranks_(static_cast<std::size_t>(shape.nranks)) {
    call_.communicator = communicator;
    call_.root = static_cast<Rank>(dice.below(nranks_));
    shape.root = call_.root;
    do {
      call_.algorithm = &algorithms()[dice.below(algorithms().size())];
    } while (!known(call_.algorithm->collective) || !call_.algorithm->applies(shape));
    call_.type = kAllDTypes[dice.below(std::size(kAllDTypes))];
    do {
      call_.op = kAllRedOps[dice.below(std::size(kAllRedOps))];
    } while (!exact(call_.op.op, call_.type));
    call_.in_place = dice.chance(30);
    std::size_t most = most_bytes / size_of(call_.type);
    if (by_blocks(collective())) most = most / nranks_ + 1;
    call_.count = dice.chance(10)
                      ? dice.below(3)
                      : 1 + dice.below(std::max<std::size_t>(1, most >> dice.below(12)));
    allocate();
  }
  // These very arguments; in and out are made here.
  StormCall(SimCall call, int nranks)
      : call_(std::move(call)), nranks_(static_cast<std::size_t>(nranks)) {
    allocate();
  }

  // Collectives whose result is known here.
  static bool known(Collective c) {
    return c == Collective::kAllReduce || c == Collective::kReduceScatter ||
           c == Collective::kAllGather || c == Collective::kBroadcast || c == Collective::kBarrier;
  }

  const SimCall& call() const { return call_; }
  Collective collective() const { return call_.algorithm->collective; }
  std::string text() const {
    return fmt::format("{} of {} x {}{}{}, root {}, communicator {}", full_name(*call_.algorithm),
                       call_.count, name(call_.type),
                       reduces(collective()) ? fmt::format(" {}", name(call_.op.op)) : "",
                       call_.in_place ? ", in place" : "", call_.root, call_.communicator);
  }

  void fill() {
    for (std::size_t r = 0; r < nranks_; ++r) {
      std::ranges::fill(ins_[r], kUntouched);
      std::ranges::fill(outs_[r], kUntouched);
      if (!reads(r)) continue;
      for (std::size_t i = 0; i < in_count(); ++i)
        put(in_of(r), i, call_.type, given(static_cast<int>(r), i));
    }
  }

  // The first thing that is wrong in the result of a rank; empty: nothing.
  std::string wrong(std::size_t r) const {
    const std::byte* got = out_of(r);
    std::byte want[8];
    for (std::size_t i = 0; i < out_count(); ++i) {
      put(want, 0, call_.type, expected(r, i));
      if (!std::equal(want, want + element(), got + i * element()))
        return fmt::format("element {} of {}", i, out_count());
    }
    const bool scattered = call_.in_place && collective() == Collective::kReduceScatter;
    if (!scattered && got[out_count() * element()] != kUntouched) return "written past the end";
    return {};
  }

  // Overwrites the result of a rank; true as long as nobody else has written there since.
  void mark(std::size_t r) { std::ranges::fill(call_.in_place ? ins_[r] : outs_[r], kMark); }
  bool marked(std::size_t r) const {
    return std::ranges::all_of(call_.in_place ? ins_[r] : outs_[r],
                               [](std::byte b) { return b == kMark; });
  }

 private:
  void allocate() {
    // One element more than needed, so that no address is null and writes past the end show.
    const std::size_t in = in_count(), out = out_count();
    ins_.resize(nranks_);
    outs_.resize(nranks_);
    for (std::size_t r = 0; r < nranks_; ++r) {
      ins_[r].resize(((call_.in_place ? std::max(in, out) : in) + 1) * element());
      outs_[r].resize(call_.in_place ? 0 : (out + 1) * element());
      call_.in.push_back(reads(r) ? in_of(r) : nullptr);
      call_.out.push_back(out_of(r));
    }
  }

  static constexpr std::byte kUntouched{0xA5}, kMark{0xEE};

  // Whether the reference is: no averages, and no sums that do not fit.
  static bool exact(RedOp op, DType type) {
    if (!defined(op, type) || op == RedOp::kAvg || op == RedOp::kPreMulSum) return false;
    const bool grows = op == RedOp::kSum || op == RedOp::kProd;
    return !grows || size_of(type) > 1 || type == DType::kBool;
  }
  int given(int rank, std::size_t i) const {
    return reduces(collective()) ? operand(rank, i, call_.type, call_.op.op) : value(rank, i);
  }

  std::size_t element() const { return size_of(call_.type); }
  std::size_t in_count() const {
    if (collective() == Collective::kBarrier) return 0;
    return call_.count * (collective() == Collective::kReduceScatter ? nranks_ : 1);
  }
  std::size_t out_count() const {
    if (collective() == Collective::kBarrier) return 0;
    return call_.count * (collective() == Collective::kAllGather ? nranks_ : 1);
  }
  bool reads(std::size_t r) const {
    return collective() != Collective::kBroadcast || static_cast<Rank>(r) == call_.root;
  }
  std::byte* in_of(std::size_t r) {
    const bool inside = call_.in_place && collective() == Collective::kAllGather;
    return ins_[r].data() + (inside ? r * call_.count * element() : 0);
  }
  const std::byte* out_of(std::size_t r) const {
    if (!call_.in_place) return outs_[r].data();
    const bool inside = collective() == Collective::kReduceScatter;
    return ins_[r].data() + (inside ? r * call_.count * element() : 0);
  }
  std::byte* out_of(std::size_t r) {
    return const_cast<std::byte*>(std::as_const(*this).out_of(r));
  }

  double expected(std::size_t r, std::size_t i) const {
    const int n = static_cast<int>(nranks_);
    switch (collective()) {
      case Collective::kAllReduce:
        return reduced(n, i, call_.type, call_.op.op);
      case Collective::kReduceScatter:
        return reduced(n, r * call_.count + i, call_.type, call_.op.op);
      case Collective::kAllGather:
        return value(static_cast<int>(i / call_.count), i % call_.count);
      default:  // kBroadcast
        return value(call_.root, i);
    }
  }

  SimCall call_;
  std::size_t nranks_;
  std::vector<std::vector<std::byte>> ins_, outs_;  // by rank; in place, outs_ are empty
};

}  // namespace weft::testing
