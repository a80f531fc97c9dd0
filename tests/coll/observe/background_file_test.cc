// A file that blocks (a pipe without a reader) must not block the caller.
#include "coll/observe/background_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "coll/observe/trace.h"
#include "support/jobs/ranks.h"
#include "support/process/read_file.h"
#include "support/process/temporary_folder.h"

namespace weft::testing {
namespace {

TEST(BackgroundFile, HasTheLastTextWhenItIsClosed) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  BackgroundFile file(path);
  for (int i = 0; i < 100; ++i) file.write("text " + std::to_string(i));
  file.close();
  EXPECT_EQ(read_file(path), "text 99");
  file.write("late");
  EXPECT_EQ(read_file(path), "text 99");
}

TEST(BackgroundFile, OfNoPathIsNone) {
  BackgroundFile none("");
  EXPECT_FALSE(none);
  none.write("text");
}

TEST(BackgroundFile, ThatHangsKeepsNobodyWaiting) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  {
    BackgroundFile file(path);
    file.write("first");
    file.write("second");
  }
  // Lets the writer thread end.
  const int reader = open(path.c_str(), O_RDONLY);
  char text[16];
  EXPECT_GT(read(reader, text, sizeof text), 0);
  close(reader);
}

// The end of a World writes the metrics once more.
TEST(BackgroundFile, OfMetricsLetsTheJobEnd) {
  const TemporaryFolder folder;
  for (Rank r = 0; r < 2; ++r)
    ASSERT_EQ(mkfifo(file_of_rank(folder / "metrics", r).c_str(), 0600), 0);
  setenv("WEFT_METRICS", (folder / "metrics").c_str(), 1);
  run_ranks(places({2}), {}, [](World& world) { EXPECT_TRUE(world.world().barrier().ok()); });
  unsetenv("WEFT_METRICS");
  for (Rank r = 0; r < 2; ++r) {
    const int reader = open(file_of_rank(folder / "metrics", r).c_str(), O_RDONLY);
    char text[4096];
    while (read(reader, text, sizeof text) > 0) continue;
    close(reader);
  }
}

}  // namespace
}  // namespace weft::testing
