// Asynchronous events of a verbs device: read without blocking, and handled by the transport. Only
// if WEFT_VERBS_TEST_DOWN and _UP are commands that take the first test device's link down and up
// again, as in the Soft-RoCE guest.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/process/shell.h"
#include "transport/loaded/loaded.h"
#include "transport/verbs/device.h"
#include "transport/verbs_net.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(VerbsReports, SayWhomTheyConcern) {
  ASSERT_TRUE(verbs_library()) << verbs_library().why_not();
  EXPECT_EQ(scope_of(IBV_EVENT_PORT_ERR), VerbsScope::kPort);
  EXPECT_EQ(scope_of(IBV_EVENT_DEVICE_FATAL), VerbsScope::kDevice);
  EXPECT_EQ(scope_of(IBV_EVENT_CQ_ERR), VerbsScope::kDevice);
  for (const auto type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR})
    EXPECT_EQ(scope_of(type), VerbsScope::kQueuePair);
  for (const auto type : {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_COMM_EST, IBV_EVENT_GID_CHANGE,
                          IBV_EVENT_LID_CHANGE, IBV_EVENT_CLIENT_REREGISTER})
    EXPECT_EQ(scope_of(type), VerbsScope::kNobody);
  EXPECT_THAT(verbs_cause(IBV_EVENT_PORT_ERR),
              AllOf(HasSubstr("IBV_EVENT_PORT_ERR"), HasSubstr("link went down")));
  EXPECT_THAT(verbs_cause(IBV_EVENT_DEVICE_FATAL), HasSubstr("dmesg"));
}

class VerbsLinkDown : public OnVerbs {
 protected:
  void SetUp() override {
    OnVerbs::SetUp();
    if (IsSkipped()) return;
    if (!std::getenv("WEFT_VERBS_TEST_DOWN") || !std::getenv("WEFT_VERBS_TEST_UP"))
      GTEST_SKIP() << "missing capability: a link that a test may take down (WEFT_VERBS_TEST_DOWN)";
  }
  void TearDown() override {
    if (!IsSkipped()) up();
  }
  static void down() { EXPECT_EQ(run(std::getenv("WEFT_VERBS_TEST_DOWN")).exit_code, 0); }
  // Takes the link up again, with its addresses.
  static void up() {
    EXPECT_EQ(run(std::getenv("WEFT_VERBS_TEST_UP")).exit_code, 0);
    EXPECT_TRUE(within_a_minute([] {
      try {
        VerbsDevice device(test_rail(0).name);
        return true;
      } catch (const Error&) {
        return false;
      }
    }));
  }
  static bool within_a_minute(const std::function<bool()>& what) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!what()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  static Net replaceable_net(bool replaceable) {
    return Net(make_in_threads(2, [replaceable](Job& job, Rank rank) {
      return make_verbs_transport(job, verbs_hosts(2), test_rail(rank), replaceable);
    }));
  }
};

TEST_F(VerbsLinkDown, IsReported) {
  VerbsDevice device(test_rail(0).name);
  VerbsReport report;
  while (device.next_report(report)) {
  }
  EXPECT_TRUE(device.port_active());
  down();
  bool told = false;
  EXPECT_TRUE(within_a_minute([&] {
    while (device.next_report(report))
      told = told || (report.type == IBV_EVENT_PORT_ERR && report.port == device.port_number());
    return told;
  }));
  EXPECT_FALSE(device.port_active());
  EXPECT_FALSE(device.next_report(report)) << "and that once";
}

// Without a send, no retry counter expires, so a receive alone would wait forever.
TEST_F(VerbsLinkDown, EndsReceivesWhereAnotherRailStandsIn) {
  Net both = replaceable_net(true);
  ASSERT_TRUE(both.connect());
  Buffer to(300);
  both[0].recv(1, 5, to);
  for (int i = 0; i < 100; ++i) both.poll_all();
  EXPECT_TRUE(both[0].transport().cause(1).ok());
  down();
  EXPECT_TRUE(within_a_minute([&] {
    for (int i = 0; i < 1000; ++i) both.poll_all();
    return !both[0].transport().cause(1).ok();
  }));
  const Status cause = both[0].transport().cause(1);
  EXPECT_EQ(cause.code(), Code::kTransport);
  EXPECT_THAT(cause.to_string(), AllOf(HasSubstr("IBV_EVENT_PORT_ERR"), HasSubstr("rank 1"),
                                       HasSubstr(test_rail(0).name)));
}

// A sleeping rank waits for the descriptors of arm().
TEST_F(VerbsLinkDown, WakesWhoSleeps) {
  Net both = replaceable_net(true);
  ASSERT_TRUE(both.connect());
  Transport& t = both[0].transport();
  Buffer to(300);
  both[0].recv(1, 5, to);
  down();
  EXPECT_TRUE(within_a_minute([&] {
    std::vector<int> fds;
    if (!t.arm(fds)) {  // an event has arrived, possibly the report
      both.poll_all();
      return !t.cause(1).ok();
    }
    std::vector<pollfd> polled;
    for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
    EXPECT_GT(::poll(polled.data(), polled.size(), 60'000), 0) << "nothing woke it";
    both[0].poll();
    return !t.cause(1).ok();
  }));
  EXPECT_THAT(t.cause(1).to_string(), HasSubstr("IBV_EVENT_PORT_ERR"));
}

// Without another rail, pending transfers wait for the link and complete when it is back.
TEST_F(VerbsLinkDown, IsRiddenOutWhereNothingStandsIn) {
  VerbsDevice watcher(test_rail(0).name);
  Net both = replaceable_net(false);
  ASSERT_TRUE(both.connect());
  down();
  EXPECT_TRUE(within_a_minute([&] { return !watcher.port_active(); }));
  for (int i = 0; i < 5000; ++i) both.poll_all();
  EXPECT_TRUE(both[0].transport().cause(1).ok()) << both[0].transport().cause(1).to_string();
  up();
  EXPECT_TRUE(both.connect());
}

}  // namespace
}  // namespace weft::testing
