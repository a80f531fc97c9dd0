// labels: multiproc
// Checkpoints: written in one layout, read in all others; whatever interrupts or damages one, it
// does not load.
#include "train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "support/processes.h"
#include "support/ranks.h"
#include "support/setting.h"
#include "train/checkpoint_index.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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

// tp ranks split tensors by rows, columns or not at all; dp ranks each keep a part of that (ZeRO),
// or all of it.
struct Layout {
  const char* name;
  int tp, dp;
  bool zero;
  int ranks() const { return tp * dp; }
};
constexpr Layout kLayouts[] = {{"one", 1, 1, false},     {"tp2", 2, 1, false},
                               {"tp2_dp2", 2, 2, false}, {"tp2_zero2", 2, 2, true},
                               {"zero3", 1, 3, true},    {"tp4", 4, 1, false},
                               {"tp2_zero3", 2, 3, true}};

struct Tensors {
  const char* name;
  std::vector<std::size_t> shape;
  int dim;  // -1: not split
};
const Tensors kTensors[] = {{"rows", {12, 7}, 0},
                            {"columns", {5, 8}, 1},
                            {"cube", {3, 4, 5}, 1},
                            {"norm", {9}, -1},
                            {"moment", {12, 7}, 0}};

double value_of(std::size_t tensor, std::size_t logical, int step) {
  return 1000 * static_cast<double>(tensor) + static_cast<double>(logical) + 0.5 * step;
}

template <class T>
struct Part {
  Part(const Layout& l, Rank rank) {
    const int tp = rank % l.tp, dp = rank / l.tp;
    for (const Tensors& t : kTensors) {
      Piece<T> p;
      p.logical = {t.name, t.shape, {}};
      if (t.dim >= 0) p.logical.shard = {t.dim, tp, l.tp};
      const std::size_t n = p.logical.count(), d = static_cast<std::size_t>(l.zero ? l.dp : 1);
      const std::size_t me = static_cast<std::size_t>(l.zero ? dp : 0);
      p.begin = n * me / d;  // uneven where it does not divide
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
  std::vector<Piece<T>> pieces;
};

template <class T>
void save(const Layout& l, const std::string& folder, int step, const nlohmann::json& extra = {}) {
  testing::run_ranks(testing::places({l.ranks()}), {}, [&](World& world) {
    Part<T> part(l, world.rank());
    part.set(step);
    save_checkpoint(world.world(), folder, step, part.pieces, extra);
  });
}

// The step that was loaded, and what went wrong.
template <class T>
std::pair<int, std::string> load(const Layout& l, const std::string& folder, int step = -1) {
  std::vector<std::pair<int, std::string>> results(static_cast<std::size_t>(l.ranks()));
  testing::run_ranks(testing::places({l.ranks()}), {}, [&](World& world) {
    auto& result = results[static_cast<std::size_t>(world.rank())];
    Part<T> part(l, world.rank());
    try {
      result.first = load_checkpoint(world.world(), folder, part.pieces, step).step;
      if (const int n = part.wrong(result.first)) result.second = std::to_string(n) + " are wrong";
    } catch (const Error& e) {
      result.second = e.what();
    }
  });
  for (const auto& result : results) EXPECT_EQ(result, results[0]);  // all throw, or none
  return results[0];
}

TEST(Checkpoint, LoadsIntoEveryOtherLayout) {
  for (const Layout& from : kLayouts) {
    Folder folder;
    save<double>(from, folder, 7);
    for (const Layout& to : kLayouts)
      EXPECT_EQ(load<double>(to, folder), std::pair(7, std::string()))
          << from.name << " -> " << to.name;
    EXPECT_EQ(load<float>(kLayouts[3], folder), std::pair(7, std::string()));  // converts
  }
}

TEST(Checkpoint, FloatsLoadAsDoubles) {
  Folder folder;
  save<float>(kLayouts[3], folder, 2);
  EXPECT_EQ(load<double>(kLayouts[4], folder), std::pair(2, std::string()));
}

TEST(Checkpoint, IsWrittenByAllRanksAndEverythingOnce) {
  Folder folder;
  const Layout l = kLayouts[2];  // two replicas
  save<double>(l, folder, 1);
  std::size_t bytes = 0, files = 0, elements = 0;
  for (const auto& entry : fs::directory_iterator(folder / "step-00000001"))
    if (entry.path().extension() == ".shard") {
      ++files;
      bytes += entry.file_size();
    }
  for (const Tensors& t : kTensors) elements += Logical{t.name, t.shape, {}}.logical_count();
  EXPECT_EQ(files, 4u);
  EXPECT_EQ(bytes, elements * sizeof(double));
}

TEST(Checkpoint, KeepsTheNewestAndWhatTheTrainerPutIn) {
  Folder folder;
  for (int step = 1; step <= 4; ++step) save<float>(kLayouts[0], folder, step, {{"seed", step}});
  EXPECT_THAT(committed_checkpoints(folder), SizeIs(2));
  EXPECT_EQ(load<float>(kLayouts[1], folder).first, 4);
  EXPECT_EQ(load<float>(kLayouts[1], folder, 3).first, 3);
  EXPECT_THAT(load<float>(kLayouts[1], folder, 1).second,
              HasSubstr("no committed checkpoint of step 1"));
  // The same step again, by a resumed job: the new one counts.
  save<float>(kLayouts[0], folder, 4, {{"seed", 40}});
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Part<float> part(kLayouts[0], 0);
    EXPECT_EQ(load_checkpoint(world.world(), folder, part.pieces).extra["seed"], 40);
  });
}

// ---- damage

std::string only_step(const Folder& folder) { return committed_checkpoints(folder).at(0); }

TEST(CheckpointDamage, IsNamed) {
  const auto damaged = [](const std::function<void(const std::string&)>& damage) {
    Folder folder;
    save<double>(kLayouts[1], folder, 3);
    damage(only_step(folder));
    return load<double>(kLayouts[4], folder).second;
  };
  EXPECT_THAT(damaged([](const std::string& path) { fs::remove(path + "/rank-00001.shard"); }),
              HasSubstr("rank-00001.shard: No such file"));
  EXPECT_THAT(damaged([](const std::string& path) {
                const std::string file = path + "/rank-00001.shard";
                fs::resize_file(file, fs::file_size(file) - 1);
              }),
              HasSubstr("rank-00001.shard is cut off"));
  EXPECT_THAT(damaged([](const std::string& path) {
                std::fstream file(path + "/rank-00000.shard", std::ios::in | std::ios::out);
                file.seekp(17);
                file.put('\x55');
              }),
              HasSubstr("rank-00000.shard is damaged: tensor"));
  EXPECT_THAT(damaged([](const std::string& path) { fs::remove(path + "/commit"); }),
              HasSubstr("no committed checkpoint"));
  EXPECT_THAT(damaged([](const std::string& path) {
                std::ofstream(path + "/manifest.json", std::ios::app) << " ";
              }),
              HasSubstr("no committed checkpoint"));
  EXPECT_THAT(
      damaged([](const std::string& path) { std::ofstream(path + "/commit") << "00000000"; }),
      HasSubstr("no committed checkpoint"));
}

TEST(CheckpointDamage, AnyChangedByteIsFound) {
  std::mt19937 random(testing::seed());
  for (int k = 0; k < 40; ++k) {
    Folder folder;
    save<float>(kLayouts[0], folder, 3);
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(only_step(folder)))
      files.push_back(entry.path());
    const std::string file = files[random() % files.size()];
    const auto size = fs::file_size(file);
    if (k % 2) {
      fs::resize_file(file, random() % size);
    } else {
      std::fstream f(file, std::ios::in | std::ios::out);
      const auto at = static_cast<long>(random() % size);
      f.seekg(at);
      const int old = f.get();
      f.seekp(at);
      f.put(static_cast<char>(old ^ (1 << random() % 8)));
    }
    EXPECT_NE(load<float>(kLayouts[0], folder).second, "") << file;
  }
}

TEST(CheckpointErrors, WhatDoesNotFitIsNamed) {
  Folder folder;
  const auto said = [&](const std::function<void(World&)>& body) {
    std::string text = "nothing";
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      try {
        body(world);
      } catch (const Error& e) {
        if (world.rank() == 0) text = e.what();
      }
    });
    return text;
  };
  EXPECT_THAT(said([&](World& world) {
                Part<float> part(kLayouts[0], 0);
                load_checkpoint(world.world(), folder, part.pieces);
              }),
              HasSubstr("no committed checkpoint in"));
  // Two ranks have the first of four parts and the second: half a tensor.
  EXPECT_THAT(said([&](World& world) {
                Part<float> part(kLayouts[5], world.rank());
                save_checkpoint(world.world(), folder, 1, part.pieces);
              }),
              HasSubstr("nobody wrote element"));
  EXPECT_THAT(committed_checkpoints(folder), SizeIs(0));
  EXPECT_THAT(said([&](World& world) {
                Part<float> part(kLayouts[0], 0);
                save_checkpoint(world.world(), "/proc/nowhere", 1, part.pieces);
              }),
              HasSubstr("/proc/nowhere"));
  save<float>(kLayouts[0], folder, 1);
  EXPECT_THAT(said([&](World& world) {
                Part<float> part(kLayouts[0], 0);
                part.pieces[2].logical.name = "other";
                load_checkpoint(world.world(), folder, part.pieces);
              }),
              HasSubstr("has no tensor 'other'"));
  EXPECT_THAT(said([&](World& world) {
                Part<float> part(kLayouts[0], 0);
                part.pieces[0].logical.shape = {7, 12};
                load_checkpoint(world.world(), folder, part.pieces);
              }),
              HasSubstr("tensor 'rows' is 12 x 7"));
}

// ---- death

// Saves step 1, then dies while it saves step 2; what loads afterwards.
int step_after_death(const Folder& folder, const Layout& l, Rank victim, const std::string& where) {
  const auto places = testing::places({l.ranks()});
  WorldOptions options;
  options.timeout = std::chrono::seconds(10);
  testing::Processes job(l.ranks(), std::chrono::seconds(30), [&](const JobSpec& spec) {
    World world(connect(spec), places[static_cast<std::size_t>(spec.rank)], options);
    Part<double> part(l, spec.rank);
    part.set(1);
    save_checkpoint(world.world(), folder, 1, part.pieces);
    part.set(2);
    CheckpointOptions o;
    o.at_point = [&](const char* point) {
      if (spec.rank == victim && point == where) raise(SIGKILL);
    };
    save_checkpoint(world.world(), folder, 2, part.pieces, {}, o);
    return 0;
  });
  EXPECT_TRUE(job.wait(std::chrono::seconds(20)));
  EXPECT_EQ(job.code(victim), 128 + SIGKILL);
  const auto [step, fault] = load<double>(kLayouts[0], folder);
  EXPECT_EQ(fault, "");
  return step;
}

TEST(CheckpointDeath, AtEveryPointLeavesOneThatLoads) {
  const Layout l = kLayouts[1];
  for (const char* point : {"folder", "before shard", "shard", "manifest", "commit", "end"})
    for (Rank victim = 0; victim < l.ranks(); ++victim) {
      const std::string where = point;
      if (victim != 0 && (where == "manifest" || where == "commit")) continue;  // rank 0's
      Folder folder;
      const bool done = where == "commit" || where == "end";
      EXPECT_EQ(step_after_death(folder, l, victim, where), done ? 2 : 1) << point << " " << victim;
    }
}

// At any time: what loads is whole, and of the last step that rank 0 saw committed, or the one then
// under way.
TEST(CheckpointDeath, AtRandomTimesLeavesOneThatLoads) {
  std::mt19937 random(testing::seed());
  const Layout l = kLayouts[3];
  const auto places = testing::places({l.ranks()});
  for (int k = 0; k < 6; ++k) {
    Folder folder;
    testing::Shared<std::atomic<int>> last(1);
    WorldOptions options;
    options.timeout = std::chrono::seconds(10);
    testing::Processes job(l.ranks(), std::chrono::seconds(30), [&](const JobSpec& spec) {
      World world(connect(spec), places[static_cast<std::size_t>(spec.rank)], options);
      Part<double> part(l, spec.rank);
      for (int step = 1;; ++step) {
        part.set(step);
        save_checkpoint(world.world(), folder, step, part.pieces);
        if (spec.rank == 0) last[0] = step;
      }
      return 0;
    });
    ASSERT_TRUE(
        testing::Processes::wait_until(std::chrono::seconds(20), [&] { return last[0] > 0; }));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    job.signal(static_cast<Rank>(random() % 4), SIGKILL);
    ASSERT_TRUE(job.wait(std::chrono::seconds(20)));
    const auto [step, fault] = load<double>(kLayouts[2], folder);
    EXPECT_EQ(fault, "");
    EXPECT_GE(step, last[0]);
    EXPECT_LE(step, last[0] + 1);
  }
}

// ---- the index

TEST(CheckpointIndex, ExtentsCoverAPieceOnce) {
  std::mt19937 random(testing::seed());
  for (int k = 0; k < 300; ++k) {
    const std::vector<std::size_t> shape{12, 1 + random() % 4 * 6, 12};
    const auto shard = [&] {
      const int ofs[] = {1, 2, 3, 4, 6};
      const int dim = random() % 2 ? 0 : 2, of = ofs[random() % 5];
      return Shard{dim, static_cast<int>(random() % static_cast<unsigned>(of)), of};
    };
    const Logical wanted{"x", shape, shard()};
    const Shard other = shard();
    std::vector<IndexEntry> stored;
    for (int i = 0; i < other.of; ++i) {
      IndexEntry e{{"x", shape, {other.dim, i, other.of}}, 0, 0, "f", 0, 0};
      const std::size_t n = e.logical.count(), cut = random() % n;
      e.count = cut;
      stored.push_back(e);
      e.begin = cut;
      e.count = n - cut;
      stored.push_back(e);
    }
    std::vector<const IndexEntry*> pointers;
    for (const auto& e : stored) pointers.push_back(&e);
    const std::size_t begin = random() % wanted.count(), count = wanted.count() - begin;
    std::size_t next = 0;
    for (const Extent& x : find_extents(wanted, begin, count, pointers)) {
      ASSERT_EQ(x.to, next);
      next += x.count;
      for (std::size_t i = 0; i < x.count; ++i)
        ASSERT_EQ(stored[x.source].logical.logical_index(stored[x.source].begin + x.from + i),
                  wanted.logical_index(begin + x.to + i));
    }
    ASSERT_EQ(next, count);
    pointers.erase(pointers.begin() + 1);
    if (other.of == 1 && stored[1].count > 0) {
      EXPECT_THROW(find_extents({"x", shape, {}}, 0, wanted.logical_count(), pointers), Error);
    }
  }
}

TEST(CheckpointIndex, RefusesWhatCannotBe) {
  const auto good = to_json(IndexEntry{{"x", {4, 6}, {1, 2, 3}}, 0, 8, "f", 0, 0});
  EXPECT_EQ(entry_from_json(good).logical.count(), 8u);
  const auto bad = [&](const char* key, const nlohmann::json& value) {
    auto j = good;
    j[key] = value;
    EXPECT_THROW(entry_from_json(j), Error) << key;
  };
  bad("count", 9);
  bad("begin", 1);
  bad("index", 3);
  bad("of", 4);
  bad("of", 0);
  bad("dim", 2);
  bad("file", "../x");
  bad("shape", nlohmann::json::array());
  bad("tensor", 1);
}

}  // namespace
}  // namespace weft::train
