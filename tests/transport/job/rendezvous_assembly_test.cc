// connect(): ranks find each other, whatever other connections the port gets.
// labels: multiproc waits
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/resource.h>

#include <atomic>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/control/frames.h"
#include "transport/job/job_environment.h"

// Replaces the C library's resolver: slow for two names of this host, and one of them fails on the
// first lookup.
static constexpr char kSlowName[] = "slow.invalid", kLateName[] = "late.invalid";
static constexpr std::chrono::milliseconds kSlowAnswer{5500};
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string_view asked = name ? name : "";
  if ((asked != kSlowName && asked != kLateName) || (hints && (hints->ai_flags & AI_NUMERICHOST)))
    return real(name, service, hints, found);
  std::this_thread::sleep_for(kSlowAnswer);
  static std::atomic<bool> asked_before = false;
  if (asked == kLateName && !asked_before.exchange(true)) return EAI_AGAIN;
  return real("127.0.0.1", service, hints, found);
}

namespace weft {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

// All ranks agree on the members and leave normally.
void expect_whole(std::vector<Outcome>& outcomes) {
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    ASSERT_EQ(outcomes[i].error, "") << "rank " << i;
    expected.push_back("rank " + std::to_string(i));
  }
  on_each(outcomes, [&](Job& job) {
    EXPECT_EQ(job.all_gather("rank " + std::to_string(job.rank())), expected);
    EXPECT_FALSE(job.failed()) << job.failure().to_string();
  });
  leave_all(outcomes);
}

class Assembly : public ::testing::TestWithParam<int> {};
TEST_P(Assembly, Ranks) {
  Specs setup(GetParam());
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
}
INSTANTIATE_TEST_SUITE_P(Sizes, Assembly, ::testing::Values(1, 2, 3, 5, 17, 64),
                         ::testing::PrintToStringParamName());

TEST(Strangers, WithAWrongSecretAreTurnedAwayAndToldWhy) {
  Specs setup(2, 2s);
  std::vector<JobSpec> specs{setup[0], setup[1]};
  specs[1].secret = "a wrong one";
  auto outcomes = connect_all(specs);
  EXPECT_THAT(outcomes[0].error, AllOf(HasSubstr("rank 1 did not arrive within 2000 ms"),
                                       HasSubstr("rejected"), HasSubstr("WEFT_SECRET")));
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr("rank 1"), HasSubstr("WEFT_SECRET")));
}

TEST(Strangers, DoNoHarmWhileTheJobAssembles) {
  Specs setup(3);
  std::vector<Outcome> outcomes(3);
  std::thread root([&] { outcomes[0].job = connect(setup[0]); });
  {
    std::vector<std::unique_ptr<Stranger>> slow;
    // More connections than rank 0 keeps at a time, and none of them completes a frame.
    for (int i = 0; i < 200; ++i) {
      slow.push_back(std::make_unique<Stranger>(setup.port));
      ASSERT_TRUE(slow.back()->connected());
      slow.back()->say(std::string_view("\x57\x02", static_cast<std::size_t>(i % 3)));
    }
    for (int i = 0; i < 100; ++i) Stranger scan(setup.port);
    const std::string hello = wire::encode_frame(wire::Type::kHello, std::string(150, 'x'));
    const std::string huge = wire::encode_header(wire::Type::kHello, 0xffffffff);
    const std::string early = wire::encode_frame(wire::Type::kConfirm, "");
    const std::string wrong_type = wire::encode_frame(wire::Type::kFailure, "");
    for (const std::string& words :
         {std::string("GET / HTTP/1.1\r\n\r\n"), hello, huge, early, wrong_type,
          std::string(100000, '\0'), early + early + early}) {
      Stranger garbage(setup.port);
      garbage.say(words);
      EXPECT_NE(garbage.hear(wire::kHeaderBytes + 36), "");  // the challenge, and then
      EXPECT_EQ(garbage.hear(1), "");                        // the end
    }
    std::vector<JobSpec> others{setup[1], setup[2]};
    auto late = connect_all(others);
    outcomes[1] = std::move(late[0]);
    outcomes[2] = std::move(late[1]);
  }
  root.join();
  expect_whole(outcomes);
}

TEST(Strangers, AHelloCannotBePlayedBack) {
  Specs setup(2, 3s);
  std::string error;
  std::thread root([&] { error = error_of([&] { return connect(setup[0]); }); });
  const auto challenge_at = [](const Stranger& s) {
    const std::string frame = s.hear(wire::kHeaderBytes + 36);
    return wire::decode_challenge(std::string_view(frame).substr(wire::kHeaderBytes)).value();
  };
  const Stranger first(setup.port), second(setup.port);
  const auto nonce = challenge_at(first).nonce;
  ASSERT_NE(nonce, challenge_at(second).nonce);
  const wire::Hello hello{1, 2, std::string(32, 'n'), std::string(16, 'i'), 1, "h"};
  const std::string frame =
      wire::encode_frame(wire::Type::kHello, wire::encode(hello, setup[0].secret, nonce));
  first.say(frame);
  EXPECT_NE(first.hear(8), "") << "the hello was right for its own challenge";
  second.say(frame);
  EXPECT_EQ(second.hear(8), "") << "and is not for another";
  root.join();
  EXPECT_THAT(error, HasSubstr("rank 1 did not arrive")) << "a hello alone is no arrival";
}

TEST(Strangers, APretendedRankZeroIsNotBelieved) {
  Specs setup(2, 1500ms);
  // An attacker that implements the protocol, but does not have the secret.
  std::thread pretender([&] {
    for (int i = 0; i < 2; ++i) {
      const int fd = accept(setup[0].listen_fd, nullptr, nullptr);
      const auto say = [&](const std::string& bytes) {
        (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      };
      say(wire::encode_frame(wire::Type::kChallenge,
                             wire::encode(wire::Challenge{1, std::string(32, 'n')})));
      const wire::Hello hello{1, 2, std::string(32, 'n'), std::string(16, 'i'), 1, "h"};
      say(wire::encode_frame(
          wire::Type::kReply,
          wire::encode(wire::Reply{true, 9999, "me"}, "guess", std::string(32, 'n'), hello)));
      char bytes[512];
      while (recv(fd, bytes, sizeof bytes, 0) > 0) continue;
      close(fd);
    }
    close(setup[0].listen_fd);
  });
  auto outcomes = connect_all({setup[1]});
  pretender.join();
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 could not reach rank 0"));
}

TEST(Late, StartersAreWaitedForOnBothSides) {
  const std::vector<std::uint16_t> any{0};
  Specs setup(2);
  close(setup[0].listen_fd);  // no listener at first
  setup[0].listen_fd = -1;
  std::vector<Outcome> outcomes(2);
  std::thread leaf([&] { outcomes[1].job = connect(setup[1]); });
  std::this_thread::sleep_for(300ms);
  outcomes[0].job = connect(setup[0]);
  leaf.join();
  expect_whole(outcomes);
}

// Frames of a megabyte to thousands of ranks take a while.
TEST(Late, AnAnswerThatIsJustComingIsWaitedFor) {
  Specs setup(2);
  setup[1].timeout = 1s;
  std::vector<Member> members;
  std::thread root([&] { members = assemble_root(setup[0]); });
  const auto leaf = connect(setup[1]);
  root.join();
  std::thread waits([&] {
    try {
      EXPECT_EQ(leaf->all_gather("mine"), (std::vector<std::string>{"yours", "mine"}));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  });
  const std::string answer = wire::encode_frame(
      wire::Type::kGather, wire::encode(wire::Numbered{1, wire::pack_parts({"yours", "mine"})}));
  for (const char byte : answer) {
    (void)::send(members[1].channel.fd(), &byte, 1, MSG_NOSIGNAL);
    std::this_thread::sleep_for(100ms);
  }
  waits.join();
  members[1].channel.send(wire::Type::kGoodbye, {});
  leaf->leave();
}

TEST(Late, APartThatIsJustComingIsWaitedFor) {
  Specs setup(2);
  setup[0].timeout = 1s;
  HandJob h(setup, {1});
  std::thread waits([&] {
    try {
      EXPECT_EQ(h.job(0).all_gather("mine"), (std::vector<std::string>{"mine", "yours"}));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  });
  const std::string part =
      wire::encode_frame(wire::Type::kGather, wire::encode(wire::Numbered{1, "yours"}));
  for (const char byte : part) {
    h.say(1, {&byte, 1});
    std::this_thread::sleep_for(100ms);
  }
  waits.join();
  h.link(1).send(wire::Type::kLeave, {});
  h.job(0).leave();
}

TEST(Missing, RanksAreNamedOnEveryRankThatArrived) {
  Specs setup(6, 1s);
  auto outcomes = connect_all({setup[0], setup[1], setup[2], setup[4]});
  for (const Outcome& o : outcomes) {
    EXPECT_EQ(o.error, "ranks 3, 5 did not arrive within 1000 ms");
  }
}

TEST(Missing, RanksThatTriedSeveralAddressesAreNoStrangers) {
  const std::vector<std::uint16_t> any{0};
  Specs setup(3, 1s);
  Fd listener = listen_on("everywhere", any);
  for (JobSpec& spec : setup.specs) {
    spec.address = "127.0.0.1,127.0.0.2,127.0.0.3";
    spec.ports = {port_of(listener.get())};
  }
  close(setup[0].listen_fd);
  setup[0].listen_fd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  for (const Outcome& o : connect_all({setup[0], setup[1]}))
    EXPECT_EQ(o.error, "rank 2 did not arrive within 1000 ms");
}

TEST(Missing, ARankZeroWithoutFilesSaysSo) {
  Specs setup(2, 500ms);
  const Stranger one(setup.port);  // any connection; rank 0 cannot accept it
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> files;
  for (int fd; (fd = dup(setup[0].listen_fd)) >= 0;) files.push_back(fd);
  const std::string error = connect_all({setup[0]})[0].error;
  for (const int fd : files) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1 did not arrive within 500 ms"),
                           HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
}

TEST(Missing, RankZeroIsNamed) {
  Specs setup(2, 500ms);
  close(setup[0].listen_fd);
  EXPECT_THAT(connect_all({setup[1]})[0].error,
              AllOf(HasSubstr("rank 1 could not reach rank 0 at \"127.0.0.1\""),
                    HasSubstr("500 ms"), HasSubstr("refused")));
  setup[1].address = "no-such-host.invalid";
  EXPECT_THAT(connect_all({setup[1]})[0].error, HasSubstr("no-such-host.invalid"));
}

TEST(Missing, ASilentServerIsNamed) {
  Specs setup(2, 500ms);  // listens, and never accepts
  EXPECT_THAT(connect_all({setup[1]})[0].error, HasSubstr("does not answer"));
  close(setup[0].listen_fd);
}

TEST(Mismatch, TwoProcessesOfOneRank) {
  Specs setup(3);
  auto outcomes = connect_all({setup[0], setup[1], setup[1]});
  EXPECT_THAT(outcomes[0].error,
              AllOf(HasSubstr("two processes claim rank 1: rank 1 (host"), HasSubstr("pid")));
  EXPECT_THAT(outcomes[1].error, HasSubstr("two processes claim rank 1"));
  EXPECT_THAT(outcomes[2].error, HasSubstr("two processes claim rank 1"));
}

TEST(Mismatch, Sizes) {
  Specs setup(3);
  setup[2].size = 4;
  auto outcomes = connect_all({setup[0], setup[2]});
  for (const Outcome& o : outcomes) {
    EXPECT_THAT(o.error, AllOf(HasSubstr("rank 2 (host"),
                               HasSubstr("one of 4 ranks, but rank 0 as one of 3")));
  }
}

TEST(Places, SeveralAddressesAndPortsAreTriedAtOnce) {
  Specs setup(3);
  // A foreign service that sends nothing, a port without a listener, and the right one.
  const std::vector<std::uint16_t> any{0};
  const Fd mute = listen_on("127.0.0.1", any);
  for (Rank r : {1, 2}) {
    setup[r].address = "127.0.0.2,localhost,127.0.0.1";
    setup[r].ports = {port_of(mute.get()), 1, setup.port};
  }
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
}

TEST(Places, NumbersDoNotWaitForAResolver) {
  Specs setup(2, 4s);
  setup[1].address = std::string(kSlowName) + ",127.0.0.1";
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
}

// The port belongs to another program, which sends nothing.
TEST(Places, NamesAreLookedUpBesideAMuteServer) {
  Specs setup(2);
  std::string problem;
  const auto at = resolve("127.0.0.2", setup[1].ports, problem);
  const int mute = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(mute, reinterpret_cast<const sockaddr*>(&at.at(0).address), at[0].bytes), 0);
  ASSERT_EQ(listen(mute, 8), 0);
  setup[1].address = "127.0.0.2,localhost";
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
  close(mute);
}

TEST(Places, ASlowResolverIsNotAskedAgainWhileItsAnswerIsOfUse) {
  Specs setup(2, 10s);
  setup[1].address = kSlowName;
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
}

TEST(Places, ASlowResolverThatDoesNotKnowANameYetIsAskedAgain) {
  Specs setup(2, 15s);
  setup[1].address = kLateName;
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
}

TEST(Places, AnyAddressOfTheLoopbackDevice) {
  Specs setup(2);
  close(setup[0].listen_fd);
  setup[0].listen_fd = -1;
  // The address of a host's own name on Debian, and so of `hostname -i`.
  setup[0].address = setup[1].address = "127.0.1.1";
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
}

TEST(Torchrun, FindsAPortWhenTheAgentOwnsTheMasters) {
  const std::vector<std::uint16_t> any{0};
  const Fd agent = listen_on("127.0.0.1", any);  // as torchrun's store does
  const std::uint16_t master = port_of(agent.get());
  const auto ports = torchrun_ports(master, "run");
  const std::vector<std::uint16_t> first{ports[0]};
  Fd taken;  // another program has our first choice
  try {
    taken = listen_on("127.0.0.1", first);
  } catch (const Error&) {
  }
  std::vector<JobSpec> specs;
  for (const char* name :
       {"WEFT_RANK", "WEFT_SIZE", "WEFT_SECRET", "PMIX_RANK", "PMIX_NAMESPACE"}) {
    unsetenv(name);
  }
  setenv("WORLD_SIZE", "4", 1), setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(master).c_str(), 1), setenv("TORCHELASTIC_RUN_ID", "run", 1);
  for (int r = 0; r < 4; ++r) {
    setenv("RANK", std::to_string(r).c_str(), 1);
    specs.push_back(job_from_environment());
  }
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}) {
    unsetenv(name);
  }
  auto outcomes = connect_all(specs);
  expect_whole(outcomes);
}

TEST(Torchrun, AllPortsTakenIsAnError) {
  const std::vector<std::uint16_t> any{0};
  const Fd taken = listen_on("127.0.0.1", any);
  Specs setup(2);
  close(setup[0].listen_fd);
  setup[0].listen_fd = -1;
  setup[0].ports = {port_of(taken.get())};
  EXPECT_THAT(connect_all({setup[0]})[0].error,
              AllOf(HasSubstr("cannot listen on port " + std::to_string(port_of(taken.get()))),
                    HasSubstr("in use")));
}

TEST(Again, AProcessMayConnectTwice) {
  Specs setup(2);
  const int listener = setup[0].listen_fd;
  auto outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
  outcomes.clear();
  setenv("WEFT_RANK", "0", 1), setenv("WEFT_SIZE", "2", 1), setenv("WEFT_SECRET", "s", 1);
  setenv("WEFT_ROOT", ("127.0.0.1:" + std::to_string(setup.port)).c_str(), 1);
  setenv("WEFT_ROOT_FD", std::to_string(listener).c_str(), 1);
  setup[0] = job_from_environment();
  for (const char* name : {"WEFT_RANK", "WEFT_SIZE", "WEFT_SECRET", "WEFT_ROOT", "WEFT_ROOT_FD"})
    unsetenv(name);
  EXPECT_EQ(setup[0].listen_fd, -1) << "the inherited socket has been used";
  setup[1].secret = "s";
  outcomes = connect_all(setup.specs);
  expect_whole(outcomes);
}

}  // namespace
}  // namespace weft
