// Profiles: what is stored and loaded, and invalid files.
#include "coll/select/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "coll/api/communicator.h"
#include "coll/runtime/calibrate.h"
#include "support/process/temporary_folder.h"
#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr auto kAll = Collective::kAllReduce;
Shape ranks(int n) {
  Shape shape;
  shape.nranks = n;
  return shape;
}

class ProfileFile : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("WEFT_PROFILE"); }
  std::string put(const std::string& text) {
    std::ofstream(folder / "p.json") << text;
    return folder / "p.json";
  }
  const testing::TemporaryFolder folder;
};

TEST(Profile, InterpolatesBetweenNeighbours) {
  Profile p;
  p.add(kAll, ranks(4), 1 << 10, "ring", 10, 5);
  p.add(kAll, ranks(4), 1 << 12, "ring", 40, 5);
  EXPECT_DOUBLE_EQ(p.time_us(kAll, ranks(4), 1 << 10, "ring"), 10);
  EXPECT_NEAR(p.time_us(kAll, ranks(4), 1 << 11, "ring"), 20, 1e-9);
  EXPECT_EQ(p.time_us(kAll, ranks(4), 1 << 13, "ring"), 0);  // beyond the measured sizes
  EXPECT_EQ(p.time_us(kAll, ranks(4), 1 << 9, "ring"), 0);
  EXPECT_EQ(p.time_us(kAll, ranks(4), 1 << 11, "direct"), 0);
  EXPECT_EQ(p.time_us(kAll, ranks(5), 1 << 11, "ring"), 0);
  EXPECT_EQ(p.time_us(Collective::kAllGather, ranks(4), 1 << 11, "ring"), 0);
  p.add(kAll, ranks(4), 1 << 20, "ring", 4000, 5);
  EXPECT_EQ(p.time_us(kAll, ranks(4), 1 << 16, "ring"), 0);  // too wide a gap
}

TEST(Profile, NewTimesOutweighOldOnes) {
  Profile p;
  for (int i = 0; i < 100; ++i) p.add(kAll, ranks(2), 64, "ring", 10, 5);
  for (int i = 0; i < 20; ++i) p.add(kAll, ranks(2), 64, "ring", 20, 5);
  EXPECT_GT(p.time_us(kAll, ranks(2), 64, "ring"), 19);
}

TEST(Profile, ReadsBackWhatItWrote) {
  Profile p;
  p.topology = "a \"small\" one";
  p.add(kAll, ranks(4), 100, "ring", 1.0 / 3, 5);
  Shape two_hosts = ranks(4);
  two_hosts.hosts = {{0, 1}, {2, 3}};
  p.add(Collective::kBroadcast, two_hosts, 1 << 20, "tree", 2e5, 7);
  const Profile q = Profile::parse(p.text());
  EXPECT_EQ(q.text(), p.text());
  EXPECT_EQ(q.topology, p.topology);
  EXPECT_EQ(q.time_us(kAll, ranks(4), 128, "ring"), 1.0 / 3);
  EXPECT_EQ(q.size(), 2u);
}

TEST(Profile, OffTellsTheOthers) {
  Profile p;
  p.turn_off();
  EXPECT_TRUE(Profile::parse(p.text()).off());
  p.add(kAll, ranks(4), 100, "ring", 1, 5);
  EXPECT_EQ(p.size(), 0u);
}

TEST(Profile, SaysWhatIsWrong) {
  const auto why = [](const std::string& text) -> std::string {
    try {
      (void)Profile::parse(text);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(why("{"), HasSubstr("parse"));
  EXPECT_THAT(why(R"({"schema":"x/1","topology":"","times":[]})"), HasSubstr("x/1"));
  const auto one = [](const std::string& collective, const std::string& us) {
    return R"({"schema":"weft.profile/1","topology":"","times":[{"collective":")" + collective +
           R"(","ranks":2,"hosts":1,"deterministic":false,"algorithm":"ring","bytes":8,"us":)" +
           us + R"(,"samples":1}]})";
  };
  EXPECT_EQ(why(one("all_reduce", "3.5")), "");
  EXPECT_THAT(why(one("all_redouce", "3.5")), HasSubstr("all_redouce"));
  EXPECT_THAT(why(one("all_reduce", "-1")), HasSubstr("-1"));
  EXPECT_NE(why(one("all_reduce", "\"x\"")), "");
  for (const std::string bytes : {"-1", "3.7", "9223372036854775809", "18446744073709551615"}) {
    std::string text = one("all_reduce", "3.5");
    text.replace(text.find("8,\"us"), 1, bytes);
    EXPECT_THAT(why(text), HasSubstr("invalid message size " + bytes));
  }
  std::string text = one("all_reduce", "3.5");
  text.replace(text.find("\"samples\":1"), 11, "\"samples\":6.8e19");
  EXPECT_THAT(why(text), HasSubstr("6.8e+19 is not an integer in range"));
}

TEST_F(ProfileFile, SavingMergesWithWhatIsThere) {
  const std::string path = folder / "deep/er/p.json";
  Profile a, b;
  a.topology = b.topology = "t";
  a.add(kAll, ranks(4), 64, "ring", 10, 5);
  b.add(kAll, ranks(4), 64, "direct", 20, 5);
  save_profile(path, a);
  save_profile(path, b);
  const Profile both = load_profile(path, "t");
  EXPECT_EQ(both.size(), 2u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "deep/er"), {}), 1)
      << "a temporary file is left";
}

TEST_F(ProfileFile, GarbageIsReplacedAndDoesNoHarm) {
  for (const char* text : {"", "garbage", "[1,2]", "{\"schema\":\"weft.profile/1\"}", "off"}) {
    const std::string path = put(text);
    const Profile p = load_profile(path, "t");
    EXPECT_EQ(p.size(), 0u) << text;
    EXPECT_EQ(p.topology, "t") << text;
    Profile news;
    news.topology = "t";
    news.add(kAll, ranks(4), 64, "ring", 10, 5);
    save_profile(path, news);
    EXPECT_EQ(load_profile(path, "t").size(), 1u) << text;
  }
}

TEST_F(ProfileFile, AnotherTopologyIsNotMixedIn) {
  Profile p;
  p.topology = "t";
  p.add(kAll, ranks(4), 64, "ring", 10, 5);
  save_profile(folder / "p.json", p);
  EXPECT_EQ(load_profile(folder / "p.json", "u").size(), 0u);
}

TEST_F(ProfileFile, WhereItIs) {
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const std::string path = profile_path("t");
  EXPECT_TRUE(path.starts_with(folder / "weft/profile-")) << path;
  EXPECT_NE(path, profile_path("u"));
  setenv("WEFT_PROFILE", "off", 1);
  EXPECT_EQ(profile_path("t"), "");
  EXPECT_TRUE(load_profile(profile_path("t"), "t").off());
  setenv("WEFT_PROFILE", "/x/y.json", 1);
  EXPECT_EQ(profile_path("t"), "/x/y.json");
  unsetenv("WEFT_PROFILE");
  Profile p;
  p.topology = "t";
  p.add(kAll, ranks(4), 64, "ring", 10, 5);
  save_profile(path, p);
  EXPECT_EQ(newest_profile(ranks(4)).size(), 1u);
  EXPECT_EQ(newest_profile(ranks(5)).size(), 0u);
}

TEST_F(ProfileFile, WhatIsNoProfileIsNeverReplaced) {
  Profile news;
  news.topology = "t";
  news.add(kAll, ranks(4), 64, "ring", 10, 5);
  const auto named = [&](const std::string& path) -> std::string {
    setenv("WEFT_PROFILE", path.c_str(), 1);
    save_profile(path, news);
    try {
      check_named_profile();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string notes = put("root:x:0:0\n");
  EXPECT_THAT(named(notes), HasSubstr(notes + " is not a profile and was left unchanged"));
  std::ifstream file(notes);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "root:x:0:0\n");
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(named(pipe), HasSubstr("is not a regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THAT(named(folder.path()), HasSubstr("is not a regular file"));
  // These may be replaced.
  EXPECT_EQ(named(put("")), "");
  EXPECT_EQ(named(put("{\"schema\":\"weft.profile/1\", cut o")), "");
  EXPECT_EQ(named(folder / "new.json"), "");
  EXPECT_EQ(load_profile(folder / "new.json", "t").size(), 1u);
  unsetenv("WEFT_PROFILE");
}

TEST_F(ProfileFile, AFolderThatCannotBeWrittenIsNoFailure) {
  std::ofstream(folder / "file") << "x";
  Profile p;
  p.add(kAll, ranks(4), 64, "ring", 10, 5);
  save_profile(folder / "file/p.json", p);  // logs the error
  EXPECT_FALSE(std::filesystem::exists(folder / "file/p.json"));
}

// An unreadable profile, as on a failing disk: the job runs without it. (Reading /proc/self/mem at
// 0 gives the error, and so does a folder.)
TEST_F(ProfileFile, OneThatCannotBeReadIsNoFailure) {
  EXPECT_EQ(load_profile("/proc/self/mem", "t").size(), 0u);
  for (const std::string& path : {std::string("/proc/self/mem"), folder / "."}) {
    setenv("WEFT_PROFILE", path.c_str(), 1);
    EXPECT_EQ(newest_profile(ranks(4)).size(), 0u) << path;
  }
  unsetenv("WEFT_PROFILE");
}

// An application's declared rate, which no command line parser has validated.
TEST(RailRate, OneThatIsNoneIsRefusedBeforeThereIsAJob) {
  for (const char* text : {"fast", "0", "-3", "4OO", "nan"}) {
    setenv("WEFT_RAIL_GBPS", text, 1);
    try {
      (void)World::from_environment();
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(std::string("WEFT_RAIL_GBPS=") + text),
                std::string::npos)
          << e.what();
    }
  }
  setenv("WEFT_RAIL_GBPS", "2.5", 1);
  EXPECT_EQ(declared_rail_gbps(0), 2.5);
  EXPECT_EQ(declared_rail_gbps(400), 400);
  unsetenv("WEFT_RAIL_GBPS");
  EXPECT_EQ(declared_rail_gbps(0), 0);
}

}  // namespace
}  // namespace weft
