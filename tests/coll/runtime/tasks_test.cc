// Tests Tasks in isolation: which functions of a task it calls, and when.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "coll/core_of_one.h"

namespace weft {
namespace {

using testing::CoreOfOne;
using testing::ToldTask;

TEST(Tasks, MoveOnceWhenStirredAndAlwaysWhenAsked) {
  CoreOfOne of;
  Tasks& tasks = of.core().tasks;
  ToldTask task(of.group());
  const CoreLock lock(of.core().mutex);
  EXPECT_TRUE(tasks.submit(&task, false));
  tasks.progress();
  EXPECT_EQ(task.turns, 0);
  tasks.mark_ready(&task);
  tasks.mark_ready(&task);
  tasks.progress();
  tasks.progress();
  EXPECT_EQ(task.turns, 1);
  tasks.ask(&task);
  tasks.progress();
  tasks.progress();
  EXPECT_EQ(task.turns, 3);
  task.next = Task::Step::kDone;
  EXPECT_TRUE(tasks.progress());
  EXPECT_EQ(task.dones, 1);
  EXPECT_TRUE(task.over);
  EXPECT_TRUE(task.status.ok());
  EXPECT_FALSE(tasks.progress());
  EXPECT_EQ(task.turns, 4) << "a task that is over has no turns";
  EXPECT_TRUE(tasks.all().empty());
}

TEST(Tasks, KeepTheirIdsWhileTheTableGrows) {
  CoreOfOne of;
  Tasks& tasks = of.core().tasks;
  const CoreLock lock(of.core().mutex);
  std::vector<std::unique_ptr<ToldTask>> many;
  std::vector<std::uint32_t> given;
  for (int i = 0; i < 1000; ++i) {
    many.push_back(std::make_unique<ToldTask>(of.group()));
    EXPECT_TRUE(tasks.submit(many.back().get(), true));
    given.push_back(many.back()->id);
  }
  EXPECT_EQ(std::set<std::uint32_t>(given.begin(), given.end()).size(), given.size());
  EXPECT_FALSE(std::set<std::uint32_t>(given.begin(), given.end()).contains(0));
  for (std::size_t i = 0; i < many.size(); ++i) EXPECT_EQ(many[i]->id, given[i]);
  for (auto& task : many) tasks.finish(task.get(), {});
  EXPECT_TRUE(tasks.all().empty());
}

TEST(Tasks, EndWithTheirCommunicator) {
  CoreOfOne of;
  Tasks& tasks = of.core().tasks;
  const CoreLock lock(of.core().mutex);
  ToldTask early(of.group()), late(of.group());
  EXPECT_TRUE(tasks.submit(&early, false));
  Status told;
  early.on_done = [&](const Status& s) { told = s; };
  of.group().failure = {Code::kPeerFailed, "rank 7 died", 7};
  of.group().broken = true;
  tasks.end_broken();
  EXPECT_EQ(early.cancels, 1);
  EXPECT_EQ(early.status.message(), "rank 7 died");
  EXPECT_FALSE(tasks.submit(&late, false));
  EXPECT_TRUE(late.over);
  EXPECT_EQ(late.status.rank(), 7);
  EXPECT_TRUE(told.ok()) << "callbacks run later, without the mutex";
  const std::vector<Tasks::Ended> ended = tasks.take_ended();
  ASSERT_EQ(ended.size(), 1u);
  ended[0].call(ended[0].status);
  EXPECT_EQ(told.message(), "rank 7 died");
}

}  // namespace
}  // namespace weft
