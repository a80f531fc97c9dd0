// labels: multiproc
// Damaged checkpoints and interrupted saves: the error is reported, and the previous checkpoint
// loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <random>

#include "support/jobs/processes.h"
#include "support/jobs/setting.h"
#include "support/train/checkpoint_parts.h"

namespace weft::train {
namespace {

using ::testing::HasSubstr;

void change_a_byte(const std::string& file, long at) {
  std::fstream f(file, std::ios::in | std::ios::out);
  f.seekg(at);
  const int old = f.get();
  f.seekp(at);
  f.put(static_cast<char>(old ^ 0x10));
}

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
  EXPECT_THAT(
      damaged([](const std::string& path) { change_a_byte(path + "/rank-00000.shard", 17); }),
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
      change_a_byte(file, static_cast<long>(random() % size));
    }
    EXPECT_NE(load<float>(kLayouts[0], folder).second, "") << file;
  }
}

// Any damage of the newest checkpoint: the previous one loads on all ranks, with a reason.
TEST(CheckpointDamage, TheOneBeforeIsTaken) {
  const auto shard = [](const std::string& path) { return path + "/rank-00000.shard"; };
  const std::pair<const char*, std::function<void(const std::string&)>> damages[] = {
      {"is damaged: tensor", [&](const std::string& path) { change_a_byte(shard(path), 17); }},
      {"is cut off",
       [&](const std::string& path) {
         fs::resize_file(shard(path), fs::file_size(shard(path)) - 1);
       }},
      {"No such file", [&](const std::string& path) { fs::remove(shard(path)); }},
      {"is not the one that was committed",
       [](const std::string& path) { change_a_byte(path + "/manifest.json", 40); }}};
  for (const auto& [why, damage] : damages) {
    Folder folder;
    save<double>(kLayouts[1], folder, 1);
    save<double>(kLayouts[2], folder, 2);
    const std::string newest = committed_checkpoints(folder).at(1);
    damage(newest);
    std::vector<std::string> left_out;
    EXPECT_EQ(load<double>(kLayouts[4], folder, -1, &left_out), std::pair(1, std::string())) << why;
    ASSERT_EQ(left_out.size(), 1u);
    EXPECT_THAT(left_out[0], HasSubstr(why));
    EXPECT_THAT(left_out[0], HasSubstr(newest));
    EXPECT_NE(load<double>(kLayouts[4], folder, 2).second, "");  // only this step was requested
  }
}

// A run resumed from an older checkpoint saves steps below that of the damaged checkpoint.
TEST(CheckpointDamage, WhatWasSavedAfterItIsKept) {
  Folder folder;
  save<double>(kLayouts[1], folder, 2);
  save<double>(kLayouts[1], folder, 6);
  change_a_byte(committed_checkpoints(folder).at(1) + "/rank-00000.shard", 17);
  EXPECT_EQ(load<double>(kLayouts[1], folder), std::pair(2, std::string()));
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Part<double> part(kLayouts[1], world.rank());
    part.set(4);
    save_checkpoint(world.world(), folder, 4, part.pieces, {}, {.keep = 1});
  });
  EXPECT_EQ(load<double>(kLayouts[1], folder), std::pair(4, std::string()));
}

// Like a failing disk or an unresponsive file server: reading a self-referencing symbolic link is a
// system error. Regression: this was treated as a folder without checkpoints, so a new job started
// and removed the checkpoints that it could not read.
TEST(CheckpointDamage, WhatCannotBeReadNowIsNoSignThatThereIsNone) {
  const auto there = [](const std::string& folder) {
    std::vector<std::string> said(2);
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      try {
        said[static_cast<std::size_t>(world.rank())] =
            checkpoint_there(world.world(), folder) ? "yes" : "no";
      } catch (const Error& e) {
        said[static_cast<std::size_t>(world.rank())] = e.what();
      }
    });
    EXPECT_EQ(said[0], said[1]);
    return said[0];
  };
  const auto hide = [](const std::string& file) {
    fs::rename(file, file + ".away");
    fs::create_symlink(file, file);
  };
  Folder folder;
  const std::string inside = static_cast<std::string>(folder) + "/inside";
  EXPECT_EQ(there(inside), "no");
  save<double>(kLayouts[0], inside, 1);
  save<double>(kLayouts[0], inside, 2);
  EXPECT_EQ(there(inside), "yes");
  hide(inside + "/step-00000002/commit");
  EXPECT_EQ(there(inside), "yes");
  hide(inside + "/step-00000001/commit");
  EXPECT_THAT(there(inside), HasSubstr("cannot be read, and may be whole"));
  save<double>(kLayouts[0], inside, 3);
  for (const char* step : {"/step-00000001", "/step-00000002", "/step-00000003"})
    EXPECT_TRUE(fs::exists(inside + step)) << step;
  hide(inside);
  EXPECT_THAT(there(inside), HasSubstr("cannot list"));
  const std::string other = static_cast<std::string>(folder) + "/other";
  fs::create_directory(other);
  std::ofstream(other + "/step-00000001") << "a file";
  EXPECT_EQ(there(other), "no");
}

// Names like "step-00000002.best" are the user's own.
TEST(CheckpointDamage, CopiesUnderOtherNamesAreLeftAlone) {
  Folder folder;
  save<double>(kLayouts[1], folder, 2);
  const std::string saved = committed_checkpoints(folder).at(0);
  for (const char* suffix : {".best", "-mine", ".1x"})
    std::filesystem::copy(saved, saved + suffix, std::filesystem::copy_options::recursive);
  for (const int step : {4, 6}) {
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      Part<double> part(kLayouts[1], world.rank());
      part.set(step);
      save_checkpoint(world.world(), folder, step, part.pieces, {}, {.keep = 1});
    });
  }
  EXPECT_EQ(committed_checkpoints(folder).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(saved));
  for (const char* suffix : {".best", "-mine", ".1x"})
    EXPECT_TRUE(std::filesystem::exists(saved + suffix + "/commit")) << suffix;
}

// ---- rank failures

// Saves step 1, kills a rank while it saves step 2, and returns the step that loads afterwards.
int step_after_death(const Folder& folder, const CheckpointLayout& l, Rank victim,
                     const std::string& where) {
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
  const CheckpointLayout l = kLayouts[1];
  for (const char* point : {"folder", "before shard", "shard", "manifest", "commit", "end"})
    for (Rank victim = 0; victim < l.ranks(); ++victim) {
      const std::string where = point;
      if (victim != 0 && (where == "manifest" || where == "commit")) continue;  // only on rank 0
      Folder folder;
      const bool done = where == "commit" || where == "end";
      EXPECT_EQ(step_after_death(folder, l, victim, where), done ? 2 : 1) << point << " " << victim;
    }
}

// At a random time: the checkpoint that loads is complete, and is the last step that rank 0 saw
// committed or the step in progress.
TEST(CheckpointDeath, AtRandomTimesLeavesOneThatLoads) {
  std::mt19937 random(testing::seed());
  const CheckpointLayout l = kLayouts[3];
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

}  // namespace
}  // namespace weft::train
