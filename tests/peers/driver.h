// Shared by the drivers of all peers: the command line, the check of the result, and the timing.
// Timing is as in `weft perf`: a barrier precedes each operation, its time is the maximum over
// ranks, and the result is the median over iterations.
//
//   DRIVER COLLECTIVE [--in-place] [--back-to-back] [--budget SECONDS] BYTES:ITERATIONS...
//
// BYTES is the whole buffer: the result of an all_gather, the input of a reduce_scatter, either of
// an all_to_all.
// --back-to-back leaves the barriers between operations out: time = total / iterations.
// Rank 0 prints one line of JSON for each size.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace peers {

struct Options {
  std::string collective;
  bool in_place = false;
  bool back_to_back = false;
  double budget_s = 2;  // for the iterations of one size
  std::vector<std::pair<std::size_t, int>> sizes;
  std::vector<std::string> own;  // options that only this driver has
};

// Throws std::runtime_error naming the missing part of the command line.
inline Options parse(int argc, char** argv) {
  Options options;
  if (argc < 2) throw std::runtime_error("which collective?");
  options.collective = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    std::size_t bytes = 0;
    int iterations = 0;
    if (word == "--in-place") {
      options.in_place = true;
    } else if (word == "--back-to-back") {
      options.back_to_back = true;
    } else if (word == "--budget" && i + 1 < argc) {
      options.budget_s = std::atof(argv[++i]);
    } else if (std::sscanf(word.c_str(), "%zu:%d", &bytes, &iterations) == 2 && iterations > 0) {
      options.sizes.emplace_back(bytes, iterations);
    } else {
      options.own.push_back(word);
    }
  }
  if (options.sizes.empty()) throw std::runtime_error("no BYTES:ITERATIONS");
  return options;
}

// One library, as one rank uses it.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;
  // Replaces each value by its maximum over ranks, on every rank.
  virtual void max_over_ranks(std::vector<double>& values) = 0;
  // Returns an operation that can be called many times. The whole buffer has `count` floats, a
  // multiple of size() for all_gather, reduce_scatter and all_to_all; a rank has part `rank` of it.
  // in == out means in place. Throws std::runtime_error if the library lacks the collective.
  virtual std::function<void()> prepare(const std::string& collective, float* in, float* out,
                                        std::size_t count) = 0;
};

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// Returns the value that a rank contributes at position i of its own buffer.
inline float value(int rank, std::size_t i) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 7);
}

// The buffers of one size: the input and output of each collective, and the result check.
class Buffers {
 public:
  Buffers(const Options& options, const Peer& peer, std::size_t count)
      : options_(options), rank_(peer.rank()), size_(peer.size()), part_(count / size_) {
    const bool gather = options.collective == "all_gather";
    const bool scatter = options.collective == "reduce_scatter";
    in_.resize(gather ? part_ : count);
    out_.resize(scatter ? part_ : count);
    // In place uses only the whole buffer; the part is its part `rank`.
    if (gather || scatter) whole_ = gather ? &out_ : &in_;
  }

  float* out() {
    if (options_.in_place && options_.collective == "reduce_scatter") return in_.data();
    return out_.data();
  }
  float* in() {
    const bool root_only = options_.collective == "broadcast";
    return options_.in_place || root_only ? out() : in_.data();
  }

  void fill() {
    const bool gather = options_.collective == "all_gather";
    float* from = options_.in_place && gather ? out() + rank_ * part_ : in();
    const std::size_t n = gather ? part_ : whole().size();
    for (std::size_t i = 0; i < n; ++i) from[i] = value(rank_, i);
  }

  std::size_t wrong() {
    std::size_t wrong = 0;
    const std::size_t n = options_.collective == "reduce_scatter" ? part_ : whole().size();
    for (std::size_t i = 0; i < n; ++i) wrong += out()[i] != expected(i);
    return wrong;
  }

  // Zeros remain zeros under repeated in-place sums.
  void clear() {
    std::fill(in_.begin(), in_.end(), 0.0F);
    std::fill(out_.begin(), out_.end(), 0.0F);
  }

 private:
  std::vector<float>& whole() { return whole_ != nullptr ? *whole_ : out_; }
  float expected(std::size_t i) const {
    if (options_.collective == "broadcast") return value(0, i);
    if (options_.collective == "all_gather") return value(static_cast<int>(i / part_), i % part_);
    if (options_.collective == "all_to_all")
      return value(static_cast<int>(i / part_), rank_ * part_ + i % part_);
    if (options_.collective == "reduce_scatter") i += rank_ * part_;
    float sum = 0;
    for (int r = 0; r < size_; ++r) sum += value(r, i);
    return sum;
  }

  const Options& options_;
  int rank_, size_;
  std::size_t part_;
  std::vector<float> in_, out_;
  std::vector<float>* whole_ = nullptr;
};

inline double max_over_ranks(Peer& peer, double value) {
  std::vector<double> values = {value};
  peer.max_over_ranks(values);
  return values[0];
}

// Returns the sorted times of the iterations, the same on all ranks.
inline std::vector<double> measure(Peer& peer, const std::function<void()>& run, bool back_to_back,
                                   int iterations) {
  std::vector<double> times(back_to_back ? 1 : static_cast<std::size_t>(iterations));
  if (back_to_back) {
    peer.barrier();
    const double start = now_us();
    for (int i = 0; i < iterations; ++i) run();
    times[0] = (now_us() - start) / iterations;
  } else {
    for (double& time : times) {
      peer.barrier();
      const double start = now_us();
      run();
      time = now_us() - start;
    }
  }
  peer.max_over_ranks(times);
  std::sort(times.begin(), times.end());
  return times;
}

// Returns the number of wrong elements over all ranks and sizes.
inline double run_all(Peer& peer, const Options& options) {
  const bool parts = options.collective == "all_gather" || options.collective == "reduce_scatter" ||
                     options.collective == "all_to_all";
  double wrong_in_all = 0;
  for (const auto& [bytes, wanted] : options.sizes) {
    std::size_t count = bytes / sizeof(float);
    if (parts) count -= count % static_cast<std::size_t>(peer.size());
    if (count == 0) throw std::runtime_error("a size leaves nothing for some ranks");
    Buffers buffers(options, peer, count);
    const auto run = peer.prepare(options.collective, buffers.in(), buffers.out(), count);
    buffers.fill();
    run();
    const double wrong = max_over_ranks(peer, static_cast<double>(buffers.wrong()));
    wrong_in_all += wrong;
    peer.barrier();
    buffers.clear();
    // The warm-up determines how many iterations fit the budget, the same number on every rank.
    const int warm_up = std::max(2, std::min(wanted / 10, 100));
    const auto first = measure(peer, run, false, 2);
    const double fits = options.budget_s * 1e6 / std::max(first[0], 0.01);
    measure(peer, run, false, static_cast<int>(std::clamp(fits / 4, 1.0, double(warm_up))));
    const int iterations = static_cast<int>(std::clamp(fits, 3.0, std::max(3.0, double(wanted))));
    const auto times = measure(peer, run, options.back_to_back, iterations);
    if (peer.rank() != 0) continue;
    std::printf(
        "{\"bytes\": %zu, \"iterations\": %d, \"time_us_min\": %.3f, \"time_us_p50\": %.3f, "
        "\"time_us_p99\": %.3f, \"wrong\": %.0f}\n",
        bytes, iterations, times.front(), times[times.size() / 2], times[times.size() * 99 / 100],
        wrong);
    std::fflush(stdout);
  }
  return wrong_in_all;
}

}  // namespace peers
