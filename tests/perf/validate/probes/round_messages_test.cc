// The texts of a round between rank 0 and the hosts' agents: memory use at 8,192 ranks, and
// handling of impossible values.
#include "perf/validate/probes/round_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/perf/validate/agents.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

// An end that measures nothing and reports as much as a real one.
class FakeEnd final : public FlowEnd {
 public:
  explicit FakeEnd(const EndOrder& order) : order_(order) {}
  std::string offer() override { return "10.120.130.140 45678 18446744073709551615"; }
  void connect(const std::string& theirs) override { theirs_ = theirs; }
  EndSample run() override {
    EndSample s;
    s.flow = order_.flow;
    s.sends = order_.sends;
    if (theirs_.empty()) s.error = "no offer";
    s.seconds = 0.2987654321;
    s.bytes = 14'938'271'605;
    s.starved = 0.0123456789;
    if (s.sends) {
      s.packets = 1'666'666;
      s.retransmits = 3;
      s.receiver_limited = s.sender_limited = s.sender_idle = 0.123456789;
      s.min_rtt_us = 12.5;
    } else {
      s.window_s = 0.0187;
      s.window_gbps.assign(12, 392.123456789);
    }
    return s;
  }

 private:
  const EndOrder order_;
  std::string theirs_;
};

std::unique_ptr<FlowEnd> make_fake(const EndOrder& order) {
  return std::make_unique<FakeEnd>(order);
}

// The samples of a host's ends as text. A real agent uses a thread per end, which takes long for
// 16,384 ends.
std::string samples_of(const std::string& orders) {
  Json samples = Json::array();
  for (const Json& order : Json::parse(orders)) {
    FakeEnd end(end_order_from_json(order));
    end.connect(end.offer());
    samples.push_back(to_json(end.run()));
  }
  return samples.dump();
}

Round ring_round(int hosts, int rails) {
  Round round;
  for (int h = 0; h < hosts; ++h)
    for (int r = 0; r < rails; ++r) round.flows.push_back({{h, r}, {(h + 1) % hosts, r}});
  return round;
}

std::size_t bytes_of(const std::vector<std::string>& texts) {
  return std::accumulate(
      texts.begin(), texts.end(), std::size_t{0},
      [](std::size_t sum, const std::string& text) { return sum + text.size(); });
}

// 1,024 hosts of 8 rails, with every port sending and receiving: the largest possible round. A host
// holds the texts of its 16 ends, rank 0 those of one step for all ends.
TEST(RoundMessages, OfThousandHostsAreHeldInBoundedMemory) {
  constexpr int kHosts = 1024, kRails = 8;
  constexpr std::size_t kMostOfHost = 16 * 1024, kMostOfStep = kHosts * kMostOfHost / 2;
  const std::vector<FleetHost> hosts = fleet_hosts(kHosts, kRails);
  const Round round = ring_round(kHosts, kRails);
  std::vector<FalseReport> lies;
  const std::vector<std::string> orders = orders_of(round, hosts);
  std::vector<std::string> offers, samples;
  for (const std::string& text : orders) offers.push_back(AgentRound(text, make_fake).offers());
  const std::vector<std::string> routed = route_offers(round, hosts, offers, lies);
  AgentRound agent(orders[7], make_fake);
  agent.connect(routed[7]);
  EXPECT_EQ(agent.run(), samples_of(orders[7]));
  for (std::size_t h = 0; h < orders.size(); ++h) {
    samples.push_back(samples_of(orders[h]));
    EXPECT_LE(orders[h].size() + offers[h].size() + routed[h].size() + samples[h].size(),
              kMostOfHost)
        << h;
  }
  for (const std::vector<std::string>& step : {orders, offers, routed, samples})
    EXPECT_LE(bytes_of(step), kMostOfStep);
  const std::vector<FlowSample> joined = join_samples(round, hosts, samples, lies);
  EXPECT_THAT(lies, IsEmpty());
  ASSERT_EQ(joined.size(), round.flows.size());
  for (const FlowSample& sample : joined) {
    ASSERT_TRUE(sample.reached) << sample.error;
    ASSERT_EQ(sample.sent_bytes, std::optional<std::uint64_t>(14'938'271'605));
  }
}

// Three hosts, with a flow from each to the next; `change` modifies the samples of h1.
class Liar : public ::testing::Test {
 protected:
  std::vector<FlowSample> samples_after(const std::function<void(std::string&)>& change) {
    std::vector<std::string> samples;
    for (const std::string& text : orders_of(round_, hosts_)) {
      AgentRound agent(text, make_fake);
      const std::string offer = Json::array({{0, true, "x"},
                                             {0, false, "x"},
                                             {1, true, "x"},
                                             {1, false, "x"},
                                             {2, true, "x"},
                                             {2, false, "x"}})
                                    .dump();
      agent.connect(offer);
      samples.push_back(agent.run());
    }
    change(samples[1]);
    lies_.clear();
    return join_samples(round_, hosts_, samples, lies_);
  }
  std::vector<FlowSample> samples_after_field(const char* key, const Json& value) {
    return samples_after([&](std::string& text) {
      Json json = Json::parse(text);
      for (Json& sample : json) sample[key] = value;
      text = json.dump();
    });
  }

  const std::vector<FleetHost> hosts_ = fleet_hosts(3, 1);
  const Round round_ = ring_round(3, 1);
  std::vector<FalseReport> lies_;
};

TEST_F(Liar, TextsThatAreNoSamplesNameTheirHost) {
  for (const std::string& text : {std::string("{"), std::string("3"), std::string("[1]"),
                                  std::string("[{}]"), std::string("null"), std::string("\xff\xfe"),
                                  std::string(5000, '['), std::string("[{\"flow\":1e300}]")}) {
    const auto samples = samples_after([&](std::string& of_h1) { of_h1 = text; });
    ASSERT_EQ(lies_.size(), 1u) << text;
    EXPECT_EQ(lies_[0].host, "h1");
    EXPECT_EQ(lies_[0].name, "samples");
    ASSERT_EQ(samples.size(), 3u);
    EXPECT_FALSE(samples[0].reached) << "h1 receives this flow";
    EXPECT_FALSE(samples[1].reached) << "h1 sends this flow";
    EXPECT_TRUE(samples[2].reached);
  }
}

TEST_F(Liar, SilenceIsNoSample) {
  const auto samples = samples_after([](std::string& of_h1) { of_h1 = ""; });
  EXPECT_FALSE(samples[0].reached);
  EXPECT_EQ(samples[0].error, "this end reports nothing");
}

TEST(RoundMessages, OrderStreamsForAllFlowsButPingsAndWays) {
  const std::vector<FleetHost> hosts = fleet_hosts(2, 1);
  const auto streams_of = [&](Probe probe, bool victim) {
    Round round = ring_round(2, 1);
    round.probe = probe;
    round.flows[0].victim = victim;
    const Json orders = Json::parse(orders_of(round, hosts, 0, 4)[0]);
    return end_order_from_json(orders[0]).streams;
  };
  EXPECT_EQ(streams_of(Probe::kRate, false), 4);
  EXPECT_EQ(streams_of(Probe::kLowLoad, false), 4);
  EXPECT_EQ(streams_of(Probe::kVictim, false), 4);
  EXPECT_EQ(streams_of(Probe::kVictim, true), 1);
  EXPECT_EQ(streams_of(Probe::kLatency, false), 1);
  EXPECT_EQ(streams_of(Probe::kEntropy, false), 1);
}

TEST(RoundMessages, FlowsOfOnePortShareItsStreams) {
  const std::vector<FleetHost> hosts = fleet_hosts(4, 1);
  Round round;
  round.probe = Probe::kIncast;
  round.flows = {{{1, 0}, {0, 0}}, {{2, 0}, {0, 0}}, {{3, 0}, {0, 0}}};
  for (const auto& [streams, each] : {std::pair(8, 2), std::pair(2, 1)})
    for (const Json& order : Json::parse(orders_of(round, hosts, 0, streams)[0]))
      EXPECT_EQ(end_order_from_json(order).streams, each);
}

TEST_F(Liar, NumbersThatCannotBeNameTheirHost) {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"seconds", -1},
      {"seconds", nullptr},
      {"bytes", -5},
      {"bytes", 1.5},
      {"starved", -0.1},
      {"window_gbps", Json::array({-3})},
      {"window_gbps", "x"},
      {"bytes", 17},
      {"flow", 9},
      {"flow", -1},
      {"flow", 1e300},
      {"sends", 1},
      {"packets", -1},
      {"retransmits", 99'999'999},
      {"window_gbps", Json::array({nullptr})},
      {"streams", Json::array({{{"source_port", 70'000}, {"bytes", 1}}})},
      {"streams", Json::array({{{"source_port", 1}, {"bytes", 99'938'271'605}}})},
      {"streams", Json::array({{{"source_port", 1}, {"bytes", -1}}})},
      {"streams", Json::array({Json::object()})},
      {"streams", Json::parse("[" + std::string("{\"source_port\":1,\"bytes\":1},") +
                              "{\"source_port\":1,\"bytes\":1,\"packets\":1,\"retransmits\":99}]")},
      {"streams", Json(kMostStreams + 1, {{"source_port", 1}, {"bytes", 1}})},
      {"latency",
       {{"samples", 5},
        {"min_us", 9},
        {"p50_us", 8},
        {"p99_us", 7},
        {"p999_us", 6},
        {"max_us", 5}}}};
  for (const auto& [key, value] : cases) {
    (void)samples_after_field(key, value);
    ASSERT_FALSE(lies_.empty()) << key << " " << value;
    for (const FalseReport& lie : lies_) EXPECT_EQ(lie.host, "h1") << key;
  }
}

// h1 has an end of flows 0 and 1, and none of flow 2.
TEST_F(Liar, AnEndOfAnotherHostIsNotTakenFromAHost) {
  const auto samples = samples_after_field("flow", 2);
  ASSERT_EQ(lies_.size(), 1u);
  EXPECT_THAT(lies_[0].text, HasSubstr("no end of flow 2"));
  EXPECT_TRUE(samples[2].reached);
}

TEST_F(Liar, WhoSaysTheTruthIsNotNamed) {
  for (const FlowSample& s : samples_after([](std::string&) {})) EXPECT_TRUE(s.reached);
  EXPECT_THAT(lies_, IsEmpty());
}

TEST_F(Liar, OffersThatAreNoneAreNotPassedOn) {
  std::vector<std::string> offers;
  for (const std::string& text : orders_of(round_, hosts_))
    offers.push_back(AgentRound(text, make_fake).offers());
  offers[1] = R"([[2, true, "of another host"]])";
  const auto routed = route_offers(round_, hosts_, offers, lies_);
  ASSERT_EQ(lies_.size(), 1u);
  EXPECT_EQ(lies_[0].host, "h1");
  EXPECT_EQ(Json::parse(routed[0]).size(), 1u) << "that of h2, to which h0 is the receiver";
}

}  // namespace
}  // namespace weft::fabric
