// Exchanges messages between the agents, and finds the common place of the wrong messages.
#include "perf/validate/wrong_pairs.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "coll/runtime/internals.h"
#include "perf/validate/probes/agent_fabric.h"
#include "transport/launch/failures.h"

namespace weft::fabric {
namespace {

constexpr int kMostPartners = 7;
constexpr int kMessages = 60;  // number of messages per partner
constexpr std::size_t kBytes = 16 << 10;
constexpr int kLeastWrong = 3;
constexpr double kNearlyAll = 0.9;

std::uint8_t byte_of(int sender, int message, std::size_t i) {
  const std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761U +
                          static_cast<std::uint32_t>(sender * 8191 + message * 131);
  return static_cast<std::uint8_t>(x >> 24);
}

void fill(std::vector<std::uint8_t>& data, int sender, int message) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = byte_of(sender, message, i);
}

}  // namespace

WrongHost most_wrong(const std::vector<std::vector<int>>& wrong,
                     const std::vector<std::vector<int>>& messages) {
  std::vector<WrongHost> places;
  int all = 0;
  const auto hosts = static_cast<int>(wrong.size());
  for (int host = 0; host < hosts; ++host)
    for (const bool sends : {true, false}) {
      WrongHost& place = places.emplace_back(WrongHost{host, sends});
      for (int other = 0; other < hosts; ++other) {
        const auto from = static_cast<std::size_t>(sends ? host : other);
        const auto to = static_cast<std::size_t>(sends ? other : host);
        place.wrong += wrong[from][to];
        place.messages += messages[from][to];
      }
      all += sends ? place.wrong : 0;
    }
  std::ranges::stable_sort(places, std::greater{}, &WrongHost::wrong);
  // If two ends share all wrong messages, either end may be at fault.
  if (places.size() < 2 || places[0].wrong < kLeastWrong || places[0].wrong < kNearlyAll * all ||
      places[0].wrong == places[1].wrong)
    return {};
  return places[0];
}

WrongHost find_wrong_host(World& world) {
  const std::vector<Rank> agents = agents_of(world.topology());
  const auto n = static_cast<int>(agents.size());
  const auto mine = std::ranges::find(agents, world.rank());
  nlohmann::json seen = nlohmann::json::array();  // by sender: index, number of wrong messages
  const int partners = std::min(n - 1, kMostPartners);
  if (mine != agents.end()) {
    const auto me = static_cast<int>(mine - agents.begin());
    Communicator comm = world.world();
    std::vector<std::uint8_t> sent(kBytes), came(kBytes), expected(kBytes);
    for (int shift = 1; shift <= partners; ++shift) {
      const int to = (me + shift) % n, from = (me - shift + n) % n;
      int wrong = 0;
      for (int message = 0; message < kMessages; ++message) {
        fill(sent, me, message);
        fill(expected, from, message);
        const Message both[] = {
            Message::to(agents[static_cast<std::size_t>(to)], sent.data(), kBytes, DType::kUInt8),
            Message::from(agents[static_cast<std::size_t>(from)], came.data(), kBytes,
                          DType::kUInt8)};
        require(comm.exchange(both));
        wrong += came != expected;
      }
      seen.push_back({from, wrong});
    }
  }
  std::vector<std::vector<int>> wrong(agents.size(), std::vector<int>(agents.size()));
  std::vector<std::vector<int>> messages = wrong;
  gather_from_agents(
      job_of(world), world.topology(), seen.dump(), [&](int host, const std::string& text) {
        const auto to = static_cast<std::size_t>(host);
        for (const nlohmann::json& one : nlohmann::json::parse(text, nullptr, false)) {
          if (!one.is_array() || one.size() != 2) continue;
          const auto from = one[0].get<std::size_t>();
          if (from >= agents.size()) continue;
          wrong[from][to] = one[1].get<int>();
          messages[from][to] = kMessages;
        }
      });
  if (world.rank() != 0) return {};
  return most_wrong(wrong, messages);
}

}  // namespace weft::fabric
