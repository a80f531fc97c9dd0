// Tests Failures in isolation: the result for a suspicion, also if the search for the cause throws.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "coll/core_of_one.h"

namespace weft {
namespace {

using testing::CoreOfOne;
using testing::ToldTask;
using What = Failures::Suspicion::What;

// A job whose inquire() throws.
class Mute final : public testing::JobAround {
 public:
  using JobAround::JobAround;
  std::vector<std::string> inquire(std::chrono::milliseconds) override {
    throw std::runtime_error("out of files");
  }
};

TEST(Failures, AnExceptionInAJudgementDoesNotEndAllJudgements) {
  CoreOfOne of([](std::unique_ptr<Job> job) { return std::make_unique<Mute>(std::move(job)); });
  Failures& failures = of.core().failures;
  CoreLock lock(of.core().mutex);
  ToldTask task(of.group());
  EXPECT_TRUE(of.core().tasks.submit(&task, false));
  const Scope scope = failures.scope_of(of.group());
  failures.suspect({What::kLate, scope, &task});
  EXPECT_THROW(failures.judge(lock), std::runtime_error);
  EXPECT_FALSE(failures.any_suspicion()) << "the deadline raises it again";
  EXPECT_FALSE(of.group().broken);
  failures.suspect({.scope = scope, .why = {Code::kTransport, "known"}});
  failures.judge(lock);
  EXPECT_TRUE(of.group().broken);
  EXPECT_EQ(of.group().failure.message(), "known");
  EXPECT_EQ(task.cancels, 1);
  EXPECT_EQ(of.core().asking, 0) << "close() would wait for ever";
}

TEST(Failures, TheFirstSuspicionOfACommunicatorCounts) {
  CoreOfOne of;
  Failures& failures = of.core().failures;
  CoreLock lock(of.core().mutex);
  const Scope scope = failures.scope_of(of.group());
  failures.suspect({.scope = scope, .why = {Code::kTransport, "first"}});
  failures.suspect({.scope = scope, .why = {Code::kTransport, "second"}});
  failures.judge(lock);
  EXPECT_EQ(of.group().failure.message(), "first");
  EXPECT_EQ(failures.first_end().message(), "first");
  EXPECT_FALSE(failures.any_suspicion());
  failures.fail({Code::kTransport, "third"}, &of.group(), lock);
  EXPECT_EQ(of.group().failure.message(), "first") << "it sticks";
}

TEST(Failures, ATaskThatEndsIsNotSuspectedAnyMore) {
  CoreOfOne of;
  Failures& failures = of.core().failures;
  CoreLock lock(of.core().mutex);
  ToldTask task(of.group());
  EXPECT_TRUE(of.core().tasks.submit(&task, false));
  failures.suspect({What::kTransfer, failures.scope_of(of.group()), &task});
  EXPECT_TRUE(failures.any_suspicion());
  of.core().tasks.finish(&task, {});
  EXPECT_FALSE(failures.any_suspicion());
  EXPECT_FALSE(of.group().broken);
}

TEST(Failures, WhenAllIsOverNewCommunicatorsAreOver) {
  CoreOfOne of;
  Failures& failures = of.core().failures;
  CoreLock lock(of.core().mutex);
  EXPECT_TRUE(failures.of_new(of.group()).ok());
  failures.fail({Code::kAborted, "given up"}, nullptr, lock);
  EXPECT_TRUE(failures.all_over());
  EXPECT_EQ(failures.of_new(of.group()).message(), "given up");
  EXPECT_TRUE(of.core().groups.make(100, 100, {0})->broken);
}

}  // namespace
}  // namespace weft
