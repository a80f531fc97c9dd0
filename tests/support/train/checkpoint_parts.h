// Tensors whose elements encode their position, in several layouts of ranks, for checkpoint tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "support/jobs/ranks.h"
#include "train/checkpoint/checkpoint.h"

namespace weft::train {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(::testing::TempDir() + "weft_checkpoint_" + std::to_string(getpid())) {
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  operator std::string() const { return path_; }  // NOLINT
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Returns the folders of committed saves, oldest first; a user's own copies are left out.
inline std::vector<std::string> committed_checkpoints(const std::string& folder) {
  static const std::regex name("step-[0-9]{8}(\\.[0-9]+)?");
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder))
    if (std::regex_match(entry.path().filename().string(), name) &&
        fs::exists(entry.path() / "commit"))
      all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

// tp ranks split tensors by rows, columns or not at all; dp ranks each keep a part of that (ZeRO),
// or all of it.
struct CheckpointLayout {
  const char* name;
  int tp, dp;
  bool zero;
  int ranks() const { return tp * dp; }
};
inline constexpr CheckpointLayout kLayouts[] = {{"one", 1, 1, false},     {"tp2", 2, 1, false},
                                                {"tp2_dp2", 2, 2, false}, {"tp2_zero2", 2, 2, true},
                                                {"zero3", 1, 3, true},    {"tp4", 4, 1, false},
                                                {"tp2_zero3", 2, 3, true}};

struct Tensors {
  const char* name;
  std::vector<std::size_t> shape;
  int dim;  // -1: not split
};
inline const Tensors kTensors[] = {{"rows", {12, 7}, 0},
                                   {"columns", {5, 8}, 1},
                                   {"cube", {3, 4, 5}, 1},
                                   {"norm", {9}, -1},
                                   {"moment", {12, 7}, 0}};

inline double value_of(std::size_t tensor, std::size_t logical, int step) {
  return 1000 * static_cast<double>(tensor) + static_cast<double>(logical) + 0.5 * step;
}

template <class T>
struct Part {
  Part(const CheckpointLayout& l, Rank rank) {
    const int tp = rank % l.tp, dp = rank / l.tp;
    for (const Tensors& t : kTensors) {
      TensorPart<T> p;
      p.logical = {t.name, t.shape, {}};
      if (t.dim >= 0) p.logical.shard = {t.dim, tp, l.tp};
      const std::size_t n = p.logical.count(), d = static_cast<std::size_t>(l.zero ? l.dp : 1);
      const std::size_t me = static_cast<std::size_t>(l.zero ? dp : 0);
      p.begin = n * me / d;  // a vector, if it does not divide
      p.count = n * (me + 1) / d - p.begin;
      memory.emplace_back(p.count, T(-1));
      p.data = memory.back().data();
      pieces.push_back(p);
    }
  }
  void set(int step) {
    each([&](T& value, double right) { value = static_cast<T>(right); }, step);
  }
  int wrong(int step) {
    int n = 0;
    each([&](T& value, double right) { n += value != static_cast<T>(right); }, step);
    return n;
  }
  template <class F>
  void each(F f, int step) {
    for (std::size_t k = 0; k < pieces.size(); ++k)
      for (std::size_t i = 0; i < pieces[k].count; ++i)
        f(memory[k][i], value_of(k, pieces[k].logical.logical_index(pieces[k].begin + i), step));
  }
  std::vector<std::vector<T>> memory;
  std::vector<TensorPart<T>> pieces;
};

template <class T>
void save(const CheckpointLayout& l, const std::string& folder, int step,
          const nlohmann::json& extra = {}) {
  testing::run_ranks(testing::places({l.ranks()}), {}, [&](World& world) {
    Part<T> part(l, world.rank());
    part.set(step);
    save_checkpoint(world.world(), folder, step, part.pieces, extra);
  });
}

// The loaded step, and errors. left_out: rank 0's reasons for skipping newer checkpoints.
template <class T>
std::pair<int, std::string> load(const CheckpointLayout& l, const std::string& folder,
                                 int step = -1, std::vector<std::string>* left_out = nullptr) {
  std::vector<std::pair<int, std::string>> results(static_cast<std::size_t>(l.ranks()));
  testing::run_ranks(testing::places({l.ranks()}), {}, [&](World& world) {
    auto& result = results[static_cast<std::size_t>(world.rank())];
    Part<T> part(l, world.rank());
    try {
      const Checkpoint loaded = load_checkpoint(world.world(), folder, part.pieces, step);
      result.first = loaded.step;
      if (world.rank() == 0 && left_out != nullptr) *left_out = loaded.left_out;
      if (const int n = part.wrong(result.first)) result.second = std::to_string(n) + " are wrong";
    } catch (const Error& e) {
      result.second = e.what();
    }
  });
  for (const auto& result : results) EXPECT_EQ(result, results[0]);  // all throw, or none
  return results[0];
}

}  // namespace weft::train
