// Builds, parses and validates the texts of a round.
#include "perf/validate/probes/round_messages.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "topo/base/thread.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostWords = 200;  // characters of an error in a report

void in_threads(std::vector<std::unique_ptr<FlowEnd>>& ends,
                const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ends.size(); ++i)
    threads.push_back(start_thread("the thread of a probe", [&, i] { body(i); }));
  for (std::thread& t : threads) t.join();
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

EndOrder order_of(const Round& round, std::size_t index, bool sends,
                  const std::vector<FleetHost>& hosts, double full_pace, int streams) {
  const Flow& flow = round.flows[index];
  const Port& own = sends ? flow.from : flow.to;
  const Port& peer = sends ? flow.to : flow.from;
  EndOrder order;
  order.flow = static_cast<int>(index);
  order.peer = peer.host;
  order.sends = sends;
  order.probe = round.probe;
  order.rail = own.rail;
  order.peer_rail = peer.rail;
  order.seconds = round.seconds;
  const double pace = flow.pace < 1 ? flow.pace : full_pace;
  order.pace_gbps = pace * hosts[static_cast<std::size_t>(flow.from.host)]
                               .ports[static_cast<std::size_t>(flow.from.rail)]
                               .expected_gbps;
  order.label = flow.label;
  order.victim = flow.victim;
  order.streams = streams;
  return order;
}

// Calls take(item, host) for each item of each host's list. A malformed list, or an item for which
// `take` throws, is a false report of that host.
template <typename Take>
void each_item(const std::vector<FleetHost>& hosts, const std::vector<std::string>& lists,
               const char* name, std::vector<FalseReport>& false_reports, const Take& take) {
  for (std::size_t h = 0; h < lists.size(); ++h) {
    try {
      if (lists[h].empty()) continue;
      const Json list = Json::parse(lists[h]);
      if (!list.is_array()) throw Error("no list: " + lists[h]);
      for (const Json& item : list) take(item, static_cast<int>(h));
    } catch (const std::exception& e) {
      false_reports.push_back(
          {hosts[h].name, -1, name, std::string(e.what()).substr(0, kMostWords)});
    }
  }
}

// Returns the flow whose sending or receiving end is on `host`. Throws Error if the host has no
// such end.
const Flow& flow_at(const Round& round, int flow, bool sends, int host) {
  if (flow < 0 || static_cast<std::size_t>(flow) >= round.flows.size())
    throw Error("there is no flow " + std::to_string(flow));
  const Flow& f = round.flows[static_cast<std::size_t>(flow)];
  if ((sends ? f.from : f.to).host != host)
    throw Error("the host has no end of flow " + std::to_string(flow));
  return f;
}

}  // namespace

std::vector<std::string> orders_of(const Round& round, const std::vector<FleetHost>& hosts,
                                   double full_pace, int streams) {
  std::vector<Json> orders(hosts.size(), Json::array());
  const std::vector<int> streams_of_flow = streams_of(round, streams);
  for (std::size_t i = 0; i < round.flows.size(); ++i) {
    const Flow& flow = round.flows[i];
    for (const bool sends : {true, false})
      orders[static_cast<std::size_t>((sends ? flow.from : flow.to).host)].push_back(
          to_json(order_of(round, i, sends, hosts, full_pace, streams_of_flow[i])));
  }
  std::vector<std::string> texts;
  for (const Json& one : orders) texts.push_back(one.dump());
  return texts;
}

std::vector<std::string> route_offers(const Round& round, const std::vector<FleetHost>& hosts,
                                      const std::vector<std::string>& offers,
                                      std::vector<FalseReport>& false_reports) {
  std::vector<Json> routed(hosts.size(), Json::array());
  each_item(hosts, offers, "offers", false_reports, [&](const Json& item, int host) {
    const int flow = item.at(0).get<int>();
    const bool sends = item.at(1).get<bool>();
    const Flow& f = flow_at(round, flow, sends, host);
    routed[static_cast<std::size_t>((sends ? f.to : f.from).host)].push_back(
        {flow, sends, item.at(2).get<std::string>()});
  });
  std::vector<std::string> texts;
  for (const Json& one : routed) texts.push_back(dumped(one));
  return texts;
}

std::vector<FlowSample> join_samples(const Round& round, const std::vector<FleetHost>& hosts,
                                     const std::vector<std::string>& samples,
                                     std::vector<FalseReport>& false_reports) {
  EndSample none;
  none.error = "this end reports nothing";
  std::vector<EndSample> senders(round.flows.size(), none), receivers(round.flows.size(), none);
  each_item(hosts, samples, "samples", false_reports, [&](const Json& item, int host) {
    EndSample sample = end_sample_from_json(item);
    const Flow& flow = flow_at(round, sample.flow, sample.sends, host);
    if (const std::string why = why_impossible(sample); !why.empty()) {
      const int rail = (sample.sends ? flow.from : flow.to).rail;
      false_reports.push_back({hosts[static_cast<std::size_t>(host)].name, rail, "samples", why});
      return;
    }
    auto& of = sample.sends ? senders : receivers;
    of[static_cast<std::size_t>(sample.flow)] = std::move(sample);
  });
  std::vector<FlowSample> joined;
  for (std::size_t i = 0; i < round.flows.size(); ++i)
    joined.push_back(join(round.flows[i], senders[i], receivers[i]));
  return joined;
}

AgentRound::AgentRound(const std::string& orders, const Maker& make) {
  for (const Json& order : Json::parse(orders)) {
    told_.push_back(end_order_from_json(order));
    ends_.push_back(make(told_.back()));
  }
}

std::string AgentRound::offers() {
  Json offers = Json::array();
  for (std::size_t i = 0; i < ends_.size(); ++i)
    offers.push_back({told_[i].flow, told_[i].sends, ends_[i]->offer()});
  return dumped(offers);
}

void AgentRound::connect(const std::string& offers) {
  const Json theirs = Json::parse(offers);
  in_threads(ends_, [&](std::size_t i) {
    std::string offer;
    for (const Json& o : theirs)
      if (o[0] == told_[i].flow && o[1] != told_[i].sends) offer = o[2];
    ends_[i]->connect(offer);
  });
}

std::string AgentRound::run() {
  std::vector<EndSample> seen(ends_.size());
  in_threads(ends_, [&](std::size_t i) { seen[i] = ends_[i]->run(); });
  Json samples = Json::array();
  for (const EndSample& sample : seen) samples.push_back(to_json(sample));
  return dumped(samples);
}

}  // namespace weft::fabric
