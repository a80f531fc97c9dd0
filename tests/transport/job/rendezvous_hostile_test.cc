// What a rank that knows the secret may say to rank 0 on the control plane: contributions,
// inquiries and doors without end. It is named, or not heard, and the others go on.
// sanitize: address threads
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/control/frames.h"
#include "transport/job/job_assembly.h"

namespace weft {
namespace {

using namespace test;
using ::testing::HasSubstr;

// A job of three: rank 0, and the ranks of `by_hand` by hand.
struct Hostile {
  explicit Hostile(std::vector<Rank> by_hand) {
    Specs specs(3);
    jobs.resize(3);
    links.resize(3);
    std::vector<std::thread> threads;
    for (const Rank r : {0, 1, 2})
      threads.emplace_back([&, r] {
        if (std::ranges::find(by_hand, r) != by_hand.end())
          links[static_cast<std::size_t>(r)] = assemble_leaf(specs[r]);
        else
          jobs[static_cast<std::size_t>(r)].job = connect(specs[r]);
      });
    for (auto& t : threads) t.join();
  }
  Channel& link(Rank r) { return links[static_cast<std::size_t>(r)].channel; }
  // Until everything is on its way.
  void flush(Rank r) {
    while (link(r).queued() > 0) {
      pollfd polled{link(r).fd(), POLLOUT, 0};
      (void)poll(&polled, 1, 100);
      link(r).flush();
    }
  }
  // The next frame of a type that comes to the rank; nothing where the connection ends.
  std::optional<std::string> hear(Rank r, wire::Type type) {
    std::optional<std::string> heard;
    const bool in_time = eventually([&] {
      wire::Frame frame;
      const auto got = link(r).receive(frame);
      if (got == Channel::Got::kFrame && frame.type == type) heard = frame.payload;
      return heard || got == Channel::Got::kEnd;
    });
    EXPECT_TRUE(in_time);
    return heard;
  }
  std::string gather_error(Rank r) {
    try {
      (void)jobs[static_cast<std::size_t>(r)].job->all_gather("x");
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  std::vector<Outcome> jobs;
  std::vector<RootLink> links;
};

TEST(ControlHostile, AContributionWithoutEndIsCutOffByName) {
  setenv("WEFT_GATHER_BYTES", "100000", 1);
  Hostile h({1});
  unsetenv("WEFT_GATHER_BYTES");
  std::string errors[2];
  std::vector<std::thread> threads;
  for (const int i : {0, 1}) threads.emplace_back([&, i] { errors[i] = h.gather_error(2 * i); });
  const std::string bytes(1000, 'x');
  const std::string frame = wire::encode_frame(
      wire::Type::kGather, wire::encode(wire::Numbered{1, bytes}), /*more=*/true);
  for (int i = 0; i < 200; ++i)
    (void)::send(h.link(1).fd(), frame.data(), frame.size(), MSG_NOSIGNAL);
  for (auto& t : threads) t.join();
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 1 (host"));
    EXPECT_THAT(error, HasSubstr("brings more than 100000 bytes to all_gather number 1"));
    EXPECT_THAT(error, HasSubstr("WEFT_GATHER_BYTES"));
  }
}

// Its frames are taken a few at a time, and its questions once: the others are served.
TEST(ControlHostile, AFloodOfQuestionsKeepsNobodyWaiting) {
  Hostile h({1});
  for (std::uint32_t i = 0; i < 100000; ++i)
    h.link(1).send(wire::Type::kInquire, wire::encode(wire::Numbered{i, {}}));
  std::thread writes([&] { h.flush(1); });
  const auto failed = [&](Rank r) { return h.jobs[static_cast<std::size_t>(r)].job->failed(); };
  for (int i = 0; i < 3; ++i) {
    h.jobs[2].job->report(Status(Code::kMismatch, "one communicator", 2),
                          {Scope::Ends::kGroup, 2, static_cast<std::uint64_t>(i)});
    EXPECT_TRUE(eventually([&] { return h.jobs[0].job->heard() > static_cast<std::size_t>(i); }));
  }
  writes.join();
  EXPECT_FALSE(failed(0) || failed(2));
}

// The doors are told when all are known: a rank that says its own again does not count twice.
TEST(ControlHostile, ADoorCountsOnce) {
  Hostile h({1, 2});
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
  EXPECT_EQ(*wire::decode_parts(*doors, 3),
            (std::vector<std::string>{"", "127.0.0.1 2", "127.0.0.1 3"}));
}

TEST(ControlHostile, ADoorIsNoLongerThanAnAddress) {
  Hostile h({1});
  h.link(1).send(wire::Type::kDoor, std::string(5000, 'x'));
  ASSERT_TRUE(eventually([&] { return h.jobs[2].job->failed(); }));
  EXPECT_EQ(h.jobs[2].job->failure().rank(), 1);
}

TEST(ControlHostile, FailuresOfCommunicatorsHaveALimit) {
  Hostile h({1});
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
  EXPECT_TRUE(eventually([&] { return h.jobs[0].job->failed(); }));
  writes.join();
  EXPECT_LT(h.jobs[0].job->heard(), 16500u);
  EXPECT_EQ(h.jobs[0].job->failure().rank(), 1);
}

// ---- doors -----------------------------------------------------------------------------------

// The sockets on which this process listens, by inode (a descriptor's number is used again), and
// their addresses.
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

// An address of this machine that other machines may know; "" where there is none.
std::string outer_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  std::string found;
  for (const ifaddrs* a = all; a && found.empty(); a = a->ifa_next) {
    if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || a->ifa_flags & IFF_LOOPBACK) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof text);
    found = text;
  }
  freeifaddrs(all);
  return found;
}

// A rank listens, for the day that rank 0 dies, where the others find it, and nowhere else.
TEST(Doors, AreOpenOnOneAddress) {
  std::vector<std::string> addresses{"127.0.0.1"};
  if (const std::string outer = outer_address(); !outer.empty()) addresses.push_back(outer);
  for (const std::string& address : addresses) {
    Specs specs(3);
    const std::vector<std::uint16_t> any{0};
    const Fd listener = listen_on(address, any);
    close(specs[0].listen_fd);
    specs[0].listen_fd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
    for (JobSpec& spec : specs.specs) {
      spec.address = address;
      spec.ports = {port_of(listener.get())};
    }
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
