// A hostile rank that knows the secret sends rank 0 unlimited contributions, inquiries and doors.
// Rank 0 ignores it or names it in the error, and the other ranks continue.
// sanitize: address threads
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/control/frames.h"

namespace weft {
namespace {

using namespace test;
using ::testing::HasSubstr;

TEST(ControlHostile, AContributionWithoutEndIsCutOffByName) {
  setenv("WEFT_GATHER_BYTES", "100000", 1);
  HandJob h(Specs(3, 120s), {1});
  unsetenv("WEFT_GATHER_BYTES");
  std::string errors[2];
  std::vector<std::thread> threads;
  for (const int i : {0, 1})
    threads.emplace_back(
        [&, i] { errors[i] = error_of([&] { return h.job(2 * i).all_gather("x"); }); });
  const std::string bytes(1000, 'x');
  const std::string frame = wire::encode_frame(
      wire::Type::kGather, wire::encode(wire::Numbered{1, bytes}), /*more=*/true);
  for (int i = 0; i < 200; ++i) h.say(1, frame);
  for (auto& t : threads) t.join();
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 1 (host"));
    EXPECT_THAT(error, HasSubstr("contributes more than 100000 bytes to all_gather number 1"));
    EXPECT_THAT(error, HasSubstr("WEFT_GATHER_BYTES"));
  }
}

TEST(ControlHostile, AContributionThatStopsHalfWayIsNamed) {
  HandJob h(Specs(3, 4s), {1});
  h.say(1, wire::encode_frame(wire::Type::kGather, wire::encode(wire::Numbered{1, "half"}),
                              /*more=*/true));
  std::string errors[2];
  std::vector<std::thread> threads;
  for (const int i : {0, 1})
    threads.emplace_back(
        [&, i] { errors[i] = error_of([&] { return h.job(2 * i).all_gather("x"); }); });
  for (auto& t : threads) t.join();
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("rank 1 did not arrive at all_gather number 1"));
}

// Rank 0 reads a few frames at a time and answers an inquiry once, so that it serves the others.
TEST(ControlHostile, AFloodOfQuestionsKeepsNobodyWaiting) {
  HandJob h(Specs(3), {1});
  for (std::uint32_t i = 0; i < 100000; ++i)
    h.link(1).send(wire::Type::kInquire, wire::encode(wire::Numbered{i, {}}));
  std::thread writes([&] { h.flush(1); });
  for (int i = 0; i < 3; ++i) {
    h.job(2).report(Status(Code::kMismatch, "one communicator", 2),
                    {Scope::Ends::kGroup, 2, static_cast<std::uint64_t>(i)});
    EXPECT_TRUE(eventually([&] { return h.job(0).heard() > static_cast<std::size_t>(i); }));
  }
  writes.join();
  EXPECT_FALSE(h.job(0).failed() || h.job(2).failed());
}

// Doors are published when all ranks have sent theirs: a rank that sends twice counts once.
TEST(ControlHostile, ADoorCountsOnce) {
  HandJob h(Specs(3), {1, 2});
  h.link(1).send(wire::Type::kDoor, "127.0.0.1 1");
  h.link(1).send(wire::Type::kDoor, "127.0.0.1 2");
  h.link(1).send(wire::Type::kInquire, wire::encode(wire::Numbered{1, {}}));
  h.flush(1);
  ASSERT_TRUE(h.hear(2, wire::Type::kInquire)) << "rank 0 has read what rank 1 said before";
  h.link(2).send(wire::Type::kDoor, "127.0.0.1 3");
  h.flush(2);
  h.link(2).send(wire::Type::kInquire, wire::encode(wire::Numbered{1, {}}));
  const auto doors = h.hear(1, wire::Type::kDoors);
  ASSERT_TRUE(doors);
  EXPECT_EQ(*wire::unpack_parts(*doors, 3, 1 << 20),
            (std::vector<std::string>{"", "127.0.0.1 2", "127.0.0.1 3"}));
}

TEST(ControlHostile, ADoorIsNoLongerThanAnAddress) {
  HandJob h(Specs(3), {1});
  h.link(1).send(wire::Type::kDoor, std::string(5000, 'x'));
  ASSERT_TRUE(eventually([&] { return h.job(2).failed(); }));
  EXPECT_EQ(h.job(2).failure().rank(), 1);
}

TEST(ControlHostile, FailuresOfCommunicatorsHaveALimit) {
  HandJob h(Specs(3), {1});
  std::thread writes([&] {
    for (std::uint64_t i = 0; i < 20000; ++i) {
      h.link(1).send(wire::Type::kFailure, wire::encode_failure(Status(Code::kMismatch, "x", 1),
                                                                {Scope::Ends::kGroup, 1, i}));
      if (h.link(1).queued() > 1 << 20) h.flush(1);
      wire::Frame frame;
      while (h.link(1).receive(frame) == Channel::Got::kFrame) {
      }
    }
  });
  EXPECT_TRUE(eventually([&] { return h.job(0).failed(); }));
  writes.join();
  EXPECT_LT(h.job(0).heard(), 16500u);
  EXPECT_EQ(h.job(0).failure().rank(), 1);
}

// ---- doors -----------------------------------------------------------------------------------

// This process's listening sockets: inode (descriptor numbers are reused) -> address.
std::map<ino_t, std::string> listens() {
  std::map<ino_t, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int accepts = 0;
    socklen_t size = sizeof accepts;
    struct stat is;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && accepts &&
        fstat(fd, &is) == 0)
      found[is.st_ino] = local_address(fd);
  }
  return found;
}

// For a later shrink(), a rank listens on the address that the other ranks know, and on no other.
TEST(Doors, AreOpenOnOneAddress) {
  std::vector<std::string> addresses{"127.0.0.1"};
  if (const std::string outer = outer_address(); !outer.empty()) addresses.push_back(outer);
  for (const std::string& address : addresses) {
    const Specs specs = specs_at(address, 3);
    const std::map<ino_t, std::string> before = listens();
    auto jobs = connect_all(specs.specs);
    for (const Outcome& o : jobs) ASSERT_TRUE(o.job) << o.error;
    std::vector<std::string> doors;
    ASSERT_TRUE(eventually([&] {
      doors.clear();
      for (const auto& [socket, at] : listens())
        if (!before.contains(socket)) doors.push_back(at);
      return doors.size() >= 2;
    }));
    EXPECT_EQ(doors, std::vector<std::string>(2, address));
    leave_all(jobs);
  }
}

}  // namespace
}  // namespace weft
