// The ends of flows over loopback sockets, both in this process.
#include "perf/validate/probes/flow_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "perf/validate/probes/meter.h"
#include "topo/base/clock.h"
#include "transport/control/address.h"
#include "transport/control/socket.h"

namespace weft::fabric {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Nic loopback() {
  Nic nic;
  nic.name = nic.netdev = "lo";
  nic.address = "127.0.0.1";
  nic.up = true;
  return nic;
}

EndOrder order_of(Probe probe, bool sends) {
  EndOrder order;
  order.probe = probe;
  order.sends = sends;
  order.seconds = 0.1;
  return order;
}

using Maker = std::function<std::unique_ptr<FlowEnd>(const EndOrder&)>;

// Connects two ends and runs them concurrently.
FlowSample meet(const EndOrder& sender, const EndOrder& receiver, const Maker& make) {
  const auto a = make(sender), b = make(receiver);
  const std::string from_a = a->offer(), from_b = b->offer();
  const auto both = [](auto&& one, auto&& other) {
    std::thread thread(one);
    other();
    thread.join();
  };
  both([&] { a->connect(from_b); }, [&] { b->connect(from_a); });
  EndSample sent, received;
  both([&] { sent = a->run(); }, [&] { received = b->run(); });
  // Encoded as between hosts.
  return join({}, end_sample_from_json(to_json(sent)), end_sample_from_json(to_json(received)));
}

FlowSample over_tcp(EndOrder sender) {
  EndOrder receiver = sender;
  receiver.sends = false;
  return meet(sender, receiver, [](const EndOrder& o) { return make_tcp_end(o, loopback()); });
}

TEST(TcpEnd, AStreamIsCountedInWindows) {
  const FlowSample s = over_tcp(order_of(Probe::kRate, true));
  EXPECT_TRUE(s.reached) << s.error;
  EXPECT_GT(s.bytes, 1u << 20);
  EXPECT_THAT(s.window_gbps, Not(IsEmpty()));
  ASSERT_TRUE(s.packets && s.retransmits);
  EXPECT_GE(*s.packets * 65536, s.bytes) << "no packet of this device is longer";
}

TEST(TcpEnd, AStreamKeepsToItsPace) {
  EndOrder sender = order_of(Probe::kLowLoad, true);
  sender.seconds = 0.4;
  sender.pace_gbps = 0.05;
  const FlowSample s = over_tcp(sender);
  EXPECT_TRUE(s.reached) << s.error;
  EXPECT_LT(static_cast<double>(s.bytes), 0.05e9 / 8 * 0.4 * 3) << "a burst may go first";
}

TEST(TcpEnd, APingPongHasPercentilesInOrder) {
  const FlowSample s = over_tcp(order_of(Probe::kLatency, true));
  ASSERT_TRUE(s.reached && s.latency) << s.error;
  EXPECT_GT(s.latency->samples, 0);
  EXPECT_LE(s.latency->min_us, s.latency->p50_us);
  EXPECT_LE(s.latency->p50_us, s.latency->p99_us);
  EXPECT_LE(s.latency->p999_us, s.latency->max_us);
}

std::vector<int> ports_of(const FlowSample& s) {
  std::vector<int> ports;
  for (const StreamSample& stream : s.streams) ports.push_back(stream.port);
  return ports;
}

TEST(TcpEnd, ALabelChoosesTheSourcePortOfEachStream) {
  EndOrder sender = order_of(Probe::kEntropy, true);
  sender.label = 7;
  FlowSample s = over_tcp(sender);
  EXPECT_TRUE(s.reached) << s.error;
  EXPECT_THAT(ports_of(s), ElementsAre(20000 + way_of(7, 0)));
  sender.streams = 3;
  s = over_tcp(sender);
  EXPECT_TRUE(s.reached) << s.error;
  EXPECT_THAT(ports_of(s), ElementsAre(20224, 20225, 20226));
}

// The hash includes the ports of both ends: a repetition uses the same ones, without a delay.
TEST(TcpEnd, ARepeatOfALabelHasThePortsOfBothEnds) {
  Nic own = loopback();  // an address that no other test listens at
  own.address =
      "127.1." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(getpid() % 250 + 1);
  std::set<std::string> listened;
  for (int repeat = 0; repeat < 3; ++repeat) {
    EndOrder sender = order_of(Probe::kRate, true);
    sender.label = 11;
    EndOrder receiver = sender;
    receiver.sends = false;
    const FlowSample s =
        meet(sender, receiver, [&](const EndOrder& o) { return make_tcp_end(o, own); });
    EXPECT_TRUE(s.reached) << s.error;
    EXPECT_THAT(ports_of(s), ElementsAre(20000 + way_of(11, 0)));
    const std::string offer = make_tcp_end(receiver, own)->offer();
    listened.insert(offer.substr(0, offer.rfind(' ')));
  }
  EXPECT_THAT(listened, SizeIs(1));
}

TEST(TcpEnd, ALabelWhosePortIsInUseTakesItsNextOne) {
  Address taken;
  ASSERT_TRUE(parse_address("127.0.0.1", 20000 + way_of(300, 1), taken));
  const Fd other = Fd::from([] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  ASSERT_EQ(bind(other.get(), reinterpret_cast<sockaddr*>(&taken.bytes), taken.length), 0);
  ASSERT_EQ(listen(other.get(), 1), 0);
  EndOrder sender = order_of(Probe::kRate, true);
  sender.label = 300;
  sender.streams = 2;
  const FlowSample s = over_tcp(sender);
  EXPECT_TRUE(s.reached) << s.error;
  EXPECT_THAT(ports_of(s), ElementsAre(29600, 29601 + 1500));
}

TEST(TcpEnd, StreamsAddUpToTheFlow) {
  EndOrder sender = order_of(Probe::kRate, true);
  sender.streams = 4;
  const FlowSample s = over_tcp(sender);
  EXPECT_TRUE(s.reached) << s.error;
  EXPECT_THAT(s.window_gbps, Not(IsEmpty()));
  ASSERT_EQ(s.streams.size(), 4u);
  std::set<int> ports;
  std::uint64_t bytes = 0, packets = 0;
  for (const StreamSample& stream : s.streams) {
    ports.insert(stream.port);
    bytes += stream.bytes;
    ASSERT_TRUE(stream.packets && stream.retransmits);
    packets += *stream.packets;
    EXPECT_GT(stream.bytes, 0u);
  }
  EXPECT_EQ(ports.size(), 4u);
  EXPECT_EQ(bytes, s.bytes);
  EXPECT_EQ(packets, s.packets);
}

TEST(TcpEnd, StreamsShareThePace) {
  EndOrder sender = order_of(Probe::kLowLoad, true);
  sender.seconds = 0.4;
  sender.pace_gbps = 0.05;
  sender.streams = 4;
  const FlowSample s = over_tcp(sender);
  EXPECT_TRUE(s.reached) << s.error;
  EXPECT_LT(s.gbps(), 0.05 * 3) << "a stream alone has a quarter of it; a burst may go first";
}

TEST(EndSample, OfSeveralStreamsHasSumsAndMeans) {
  EndSample fast, slow;
  fast.bytes = 300;
  fast.seconds = 0.2;
  fast.packets = 3;
  fast.retransmits = 0;
  fast.sender_idle = 0.2;
  fast.min_rtt_us = 20;
  fast.streams = {{1001, 300, 3, 0}};
  slow.bytes = 100;
  slow.seconds = 0.3;
  slow.packets = 1;
  slow.retransmits = 1;
  slow.sender_idle = 0.4;
  slow.min_rtt_us = 10;
  slow.starved = 0.5;
  slow.error = "send: Connection reset by peer";
  slow.streams = {{1002, 100, 1, 1}};
  EndSample all;
  add_streams(all, {fast, slow});
  EXPECT_EQ(all.bytes, 400u);
  EXPECT_EQ(all.seconds, 0.3);
  EXPECT_EQ(all.packets, 4u);
  EXPECT_EQ(all.retransmits, 1u);
  EXPECT_NEAR(all.sender_idle.value_or(0), 0.3, 1e-9);
  EXPECT_EQ(all.min_rtt_us, 10);
  EXPECT_EQ(all.starved, 0.25);
  EXPECT_EQ(all.receiver_limited, std::nullopt);
  EXPECT_EQ(all.error, slow.error);
  EXPECT_EQ(why_impossible(all), "");
  ASSERT_EQ(all.streams.size(), 2u);
  all.streams[1].bytes = 101;
  EXPECT_THAT(why_impossible(all), HasSubstr("more than 400 bytes in streams"));
}

TEST(TcpEnd, WhoeverIsNotThereIsAnErrorAndNoWait) {
  const auto refused = make_tcp_end(order_of(Probe::kRate, true), loopback());
  refused->connect("127.0.0.1 1 42");
  EXPECT_THAT(refused->run().error, HasSubstr("connect: "));
  const auto no_peer = make_tcp_end(order_of(Probe::kRate, true), loopback());
  no_peer->connect("");
  EXPECT_THAT(no_peer->run().error, HasSubstr("could not listen"));
}

TEST(TcpEnd, AStrangerIsTurnedAway) {
  const auto receiver = make_tcp_end(order_of(Probe::kRate, false), loopback());
  std::string offer = receiver->offer();
  const auto stranger = make_tcp_end(order_of(Probe::kRate, true), loopback());
  const std::string guess = offer.substr(0, offer.rfind(' ')) + " 1";
  stranger->connect(guess);
  receiver->connect("");
  EXPECT_THAT(receiver->run().error, HasSubstr("accept: "));
}

TEST(DatagramEnd, ThePathTakesWhatTheInterfaceSays) {
  EndOrder sender = order_of(Probe::kPathMtu, true);
  const FlowSample s = meet(sender, order_of(Probe::kPathMtu, false),
                            [](const EndOrder& o) { return make_datagram_end(o, {loopback()}); });
  EXPECT_TRUE(s.reached) << s.error;
  ASSERT_TRUE(s.passed_mtu && s.failed_mtu);
  EXPECT_EQ(*s.failed_mtu, *s.passed_mtu + 1);
}

TEST(DatagramEnd, APacketIsSeenAtTheRailThatItCameInAt) {
  const FlowSample s = meet(order_of(Probe::kReach, true), order_of(Probe::kReach, false),
                            [](const EndOrder& o) { return make_datagram_end(o, {loopback()}); });
  EXPECT_TRUE(s.reached) << s.error;
  ASSERT_TRUE(s.arrived_at);
  EXPECT_EQ(s.arrived_at->rail, 0);
}

TEST(VerbsEnd, WithoutADeviceIsAnError) {
  Nic none;
  none.name = "mlx5_none";
  const auto end = make_verbs_end(order_of(Probe::kRate, true), none);
  EXPECT_EQ(end->offer(), "");
  EXPECT_THAT(end->run().error, Not(IsEmpty()));
}

// Windows of equal length contain alternately three and four messages.
TEST(WindowMeter, SpreadsMessagesOverTheirTime) {
  constexpr double kMessage_s = 0.03;
  constexpr std::uint64_t kMessage = 65536;
  WindowMeter meter(1.6);  // windows of 100 ms
  for (int i = 0; i < 60; ++i) meter.add_message(1e7 + i * kMessage_s, kMessage);
  ASSERT_EQ(meter.windows().size(), 11u);
  for (const double gbps : meter.windows()) EXPECT_NEAR(gbps, kMessage * 8e-9 / kMessage_s, 1e-6);
  // Messages that arrive together after a pause took as long as the pause.
  meter = WindowMeter(1.6);
  for (int i = 0; i < 60; i += 6) meter.add_message(1e7 + i * kMessage_s, 6 * kMessage);
  for (const double gbps : meter.windows()) EXPECT_NEAR(gbps, kMessage * 8e-9 / kMessage_s, 1e-6);
}

TEST(WindowMeter, AddsWindowsOfOneBeginning) {
  WindowMeter early(1.6, 10.0), late(1.6, 10.0), all(1.6, 10.0);
  for (int i = 0; i < 160; ++i) early.add(10 + i * 0.01, 1000);
  for (int i = 80; i < 160; ++i) late.add(10 + i * 0.01, 1000);
  all.add(early);
  all.add(late);
  all.add(WindowMeter(1.6, 10.0));  // of a stream without data
  EXPECT_EQ(all.bytes(), 240'000u);
  EXPECT_NEAR(all.seconds(), 1.59, 1e-9);
  const std::vector<double> sums = all.windows(), ones = early.windows();
  ASSERT_EQ(sums.size(), ones.size());
  EXPECT_NEAR(sums.front(), ones.front(), 1e-9);
  EXPECT_NEAR(sums.back(), 2 * ones.back(), 1e-9);
}

// Times in us: a thread sleeps until 500, wakes at 560, and receives the answer `late` later.
TEST(PingTimes, OverslepIsNoLatencyAndALateAnswerIs) {
  EXPECT_EQ(PingTimes::scheduled(500, 30, 560), 560) << "the thread slept for too long";
  EXPECT_EQ(PingTimes::scheduled(1000, 1400, 1400), 1000) << "the answer before it was late";
  PingTimes times(60, false);
  double before = times.next();
  for (int i = 0; i < 20; ++i) {  // no answer is late: at least a period apart, not in the future
    const double began = times.next();
    EXPECT_GE(began, before + 499e-6);
    EXPECT_LE(began, weft::now_s());
    before = began;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a late answer
  const double heard = weft::now_s();
  EXPECT_LT(times.next(), heard - 15e-3);
  EXPECT_LT(times.next(), heard - 15e-3) << "the one behind it would have been late, too";
}

TEST(PingTimes, AreOneWay) {
  PingTimes times(60, false);
  for (int i = 0; i < 40; ++i) times.add(i < 20 ? 300e-6 : 100e-6);
  const LatencySample s = times.summary();
  EXPECT_GT(s.samples, 20);
  EXPECT_LT(s.samples, 40) << "the first ones warm up";
  EXPECT_NEAR(s.min_us, 50, 1e-9);
  EXPECT_NEAR(s.max_us, 150, 1e-9);
}

TEST(WindowMeter, LeavesOutTheStartAndTheEnd) {
  WindowMeter meter(1.6);  // windows of 100 ms
  for (int i = 0; i <= 200; ++i) meter.add(10 + i * 0.01, i < 40 ? 5000 : 1000);
  EXPECT_EQ(meter.bytes(), 40u * 5000 + 161u * 1000);
  EXPECT_THAT(meter.windows(), Each(Gt(0)));
  for (const double gbps : meter.windows())
    EXPECT_NEAR(gbps, 10 * 1000 * 8e-9 / 0.1, 1.01 * 1000 * 8e-9 / 0.1);
  EXPECT_THAT(WindowMeter(1).windows(), IsEmpty());
}

// A flow whose last packet is lost and whose timer outlasts it has empty windows.
TEST(WindowMeter, AFlowThatStandsStillAtItsEndHasEmptyWindows) {
  WindowMeter meter(1.6);  // windows of 100 ms
  for (int i = 0; i < 80; ++i) meter.add(10 + i * 0.01, 1000);
  const std::vector<double> windows = meter.windows();
  ASSERT_EQ(windows.size(), 11u);
  EXPECT_GT(windows[3], 0);
  EXPECT_EQ(windows[4], 0);
  EXPECT_EQ(windows.back(), 0);
}

TEST(Summary, PercentilesAreThoseOfTheSamples) {
  std::vector<double> times;
  for (int i = 1000; i >= 1; --i) times.push_back(i);
  const LatencySample s = summary_of(times);
  EXPECT_EQ(s.samples, 1000);
  EXPECT_EQ(s.min_us, 1);
  EXPECT_EQ(s.p50_us, 500);
  EXPECT_EQ(s.p99_us, 990);
  EXPECT_EQ(s.p999_us, 999);
  EXPECT_EQ(s.max_us, 1000);
  EXPECT_EQ(summary_of({}).samples, 0);
}

}  // namespace
}  // namespace weft::fabric
