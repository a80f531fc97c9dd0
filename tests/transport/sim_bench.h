// A simulated fabric, transfers posted by the test, and their completion times.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transport/sim/sim.h"

namespace weft::testing::simulated {

inline constexpr std::int64_t kUs = 1'000'000;   // in ps
inline constexpr std::int64_t kLocal = 1 * kUs;  // latencies
inline constexpr std::int64_t kRail = 5 * kUs;
inline constexpr std::int64_t kSpine = 8 * kUs;
inline constexpr std::int64_t kLocalByte = 40;   // ps per byte: 200 Gb/s
inline constexpr std::int64_t kRailByte = 80;    // 100 Gb/s
inline constexpr std::int64_t kSpineByte = 160;  // 50 Gb/s

inline SimFabricOptions fabric_of(int hosts, int per_host) {
  SimFabricOptions o;
  for (int h = 0; h < hosts; ++h) {
    for (int l = 0; l < per_host; ++l) {
      o.host_of_rank.push_back(h);
      o.rail_of_rank.push_back(l);
    }
  }
  o.host = {1, 200};
  o.rail = {5, 100};
  o.spine = {8, 50};
  o.carry_data = false;
  return o;
}

// Posts transfers and records their completion times.
class Bench {
 public:
  explicit Bench(SimFabricOptions options) : fabric(std::move(options)) {
    for (Rank r = 0; r < fabric.nranks(); ++r) ends.push_back(fabric.endpoint(r));
  }
  void post(Rank rank, Transfer::Kind kind, Rank peer, std::uint64_t tag, std::size_t bytes,
            void* data = nullptr, std::uint64_t id = 0) {
    const Transfer t{.kind = kind,
                     .peer = peer,
                     .tag = tag,
                     .data = data,
                     .bytes = bytes,
                     .id = id != 0 ? id : tag};
    ends[rank]->post({&t, 1});
  }
  void send(Rank from, Rank to, std::uint64_t tag, std::size_t bytes) {
    post(from, Transfer::Kind::kSend, to, tag, bytes);
  }
  void recv(Rank at, Rank from, std::uint64_t tag, std::size_t bytes) {
    post(at, Transfer::Kind::kRecv, from, tag, bytes);
  }
  void message(Rank from, Rank to, std::uint64_t tag, std::size_t bytes) {
    send(from, to, tag, bytes);
    recv(to, from, tag, bytes);
  }
  void collect() {
    for (const Rank r : fabric.runnable()) {
      Completion c;
      while (ends[r]->poll({&c, 1}) == 1) {
        at[{r, c.id}] = fabric.now_ps();
        last[{r, c.id}] = c;
        order[r].push_back(c.id);
      }
    }
  }
  void run() {
    do {
      collect();
    } while (fabric.advance());
    collect();
  }
  void run_until_us(double us) {
    fabric.wake(0, us);
    while (fabric.now_us() < us && fabric.advance()) collect();
  }

  SimFabric fabric;
  std::vector<std::unique_ptr<Transport>> ends;
  std::map<std::pair<Rank, std::uint64_t>, std::int64_t> at;
  std::map<std::pair<Rank, std::uint64_t>, Completion> last;
  std::map<Rank, std::vector<std::uint64_t>> order;
};

}  // namespace weft::testing::simulated
