// labels: multiproc
// Checkpoints: written in one layout, read in all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/jobs/setting.h"
#include "support/train/checkpoint_parts.h"
#include "train/checkpoint/index.h"

namespace weft::train {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Checkpoint, LoadsIntoEveryOtherLayout) {
  for (const CheckpointLayout& from : kLayouts) {
    Folder folder;
    save<double>(from, folder, 7);
    for (const CheckpointLayout& to : kLayouts)
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
  const CheckpointLayout l = kLayouts[2];  // two replicas
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
  // A resumed job saves the same step again: the new checkpoint counts.
  save<float>(kLayouts[0], folder, 4, {{"seed", 40}});
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Part<float> part(kLayouts[0], 0);
    EXPECT_EQ(load_checkpoint(world.world(), folder, part.pieces).extra["seed"], 40);
  });
}

TEST(Checkpoint, AFileThatIsCalledAnythingMayBeNamedInIt) {
  Folder folder;
  save<float>(kLayouts[0], folder, 1, {{"source", "caf\xe9.txt"}});
  EXPECT_EQ(load<float>(kLayouts[0], folder), std::pair(1, std::string()));
}

// As on a full disk: a partial checkpoint would keep it full.
TEST(CheckpointErrors, ASaveThatFailsLeavesNothing) {
  for (const std::string where : {"before shard", "shard", "manifest", "commit"}) {
    Folder folder;
    save<float>(kLayouts[0], folder, 1);
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      Part<float> part(kLayouts[1], world.rank());
      CheckpointOptions o;
      o.at_point = [&](const char* point) {
        if (world.rank() == 0 && point == where) throw Error("the disk is full");
      };
      EXPECT_THROW(save_checkpoint(world.world(), folder, 2, part.pieces, {}, o), Error) << where;
    });
    EXPECT_EQ(fs::exists(folder / "step-00000002"), where == "commit") << where;
    EXPECT_EQ(load<float>(kLayouts[0], folder).first, where == "commit" ? 2 : 1) << where;
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
  // Two ranks have the first of four parts and the second: half of a tensor.
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
