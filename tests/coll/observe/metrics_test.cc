// labels: multiproc
// ctest: whole
// Counters equal the bytes moved by messages and by boards exactly; the Prometheus text has the
// same values.
#include "coll/api/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <sstream>

#include "coll/api/communicator.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;

constexpr int kRanks = 4;

struct Moved {
  std::uint64_t bytes_sent = 0, bytes_received = 0, messages_sent = 0, messages_received = 0;
};
using ByPeer = std::map<Rank, Moved>;

ByPeer traffic(const Metrics& m) {
  ByPeer all;
  for (const Metrics::Traffic& t : m.traffic) {
    EXPECT_EQ(t.link, "shm");
    Moved& to = all[t.peer];
    to.bytes_sent += t.bytes_sent;
    to.bytes_received += t.bytes_received;
    to.messages_sent += t.messages_sent;
    to.messages_received += t.messages_received;
  }
  return all;
}

// A call's counter increments, by rank and peer.
std::vector<ByPeer> added(const std::function<void(Communicator&)>& call) {
  std::vector<ByPeer> all(kRanks);
  run_ranks(places({kRanks}), {}, [&](World& world) {
    Communicator comm = world.world();
    call(comm);  // warm-up: one-time traffic
    ByPeer before = traffic(world.metrics());
    call(comm);
    ByPeer& after = all[static_cast<std::size_t>(comm.rank())];
    after = traffic(world.metrics());
    for (auto& [peer, moved] : after) {
      moved.bytes_sent -= before[peer].bytes_sent;
      moved.bytes_received -= before[peer].bytes_received;
      moved.messages_sent -= before[peer].messages_sent;
      moved.messages_received -= before[peer].messages_received;
    }
  });
  for (Rank a = 0; a < kRanks; ++a)
    for (Rank b = 0; b < kRanks; ++b) {
      EXPECT_EQ(all[static_cast<std::size_t>(a)][b].bytes_sent,
                all[static_cast<std::size_t>(b)][a].bytes_received)
          << a << " to " << b;
      EXPECT_EQ(all[static_cast<std::size_t>(a)][b].messages_sent,
                all[static_cast<std::size_t>(b)][a].messages_received)
          << a << " to " << b;
    }
  return all;
}

std::uint64_t bytes_sent(const std::vector<ByPeer>& all) {
  std::uint64_t sum = 0;
  for (const ByPeer& rank : all)
    for (const auto& [peer, moved] : rank) sum += moved.bytes_sent;
  return sum;
}

// An all_reduce of S bytes over n ranks moves 2 (n - 1) S in all if each byte is reduced once.
TEST(Metrics, AnAllReduceOfMessagesToTheByte) {
  for (const char* algorithm : {"ring", "direct", "halving_doubling"})
    for (const std::size_t count : {std::size_t{262144}, std::size_t{300007}}) {
      const auto all = added([&](Communicator& comm) {
        comm.set_algorithm(Collective::kAllReduce, algorithm);
        std::vector<float> in(count, 1), out(count);
        comm.all_reduce(in.data(), out.data(), count, DType::kFloat32, RedOp::kSum).check();
      });
      EXPECT_EQ(bytes_sent(all), 2 * (kRanks - 1) * count * 4) << algorithm << " " << count;
      if (std::string_view(algorithm) != "ring") continue;
      for (Rank r = 0; r < kRanks; ++r)
        for (const auto& [peer, moved] : all[static_cast<std::size_t>(r)])
          EXPECT_EQ(moved.bytes_sent != 0, peer == (r + 1) % kRanks) << "only to the next one";
    }
}

// On a board every rank reads every other's data: n (n - 1) S.
TEST(Metrics, AnAllReduceOnTheBoardToTheByte) {
  for (const std::size_t count : {1ul, 2ul, 100ul}) {
    const auto all = added([&](Communicator& comm) {
      std::vector<float> in(count, 1), out(count);
      for (int i = 0; i < 5; ++i)
        comm.all_reduce(in.data(), out.data(), count, DType::kFloat32, RedOp::kSum).check();
    });
    for (Rank a = 0; a < kRanks; ++a)
      for (Rank b = 0; b < kRanks; ++b) {
        if (a == b) continue;
        const Moved& moved = all[static_cast<std::size_t>(a)].at(b);
        EXPECT_EQ(moved.bytes_sent, 5 * count * 4);
        EXPECT_EQ(moved.messages_sent, 5u);
      }
  }
}

TEST(Metrics, ACollectiveWithARootOnTheBoard) {
  const auto all = added([&](Communicator& comm) {
    std::int32_t in = 1, out[kRanks] = {};
    comm.broadcast(&in, out, 1, DType::kInt32, 2).check();
    comm.gather(&in, out, 1, DType::kInt32, 2).check();
    comm.barrier().check();
  });
  for (Rank a = 0; a < kRanks; ++a)
    for (Rank b = 0; b < kRanks; ++b) {
      if (a == b) continue;
      const Moved& moved = all[static_cast<std::size_t>(a)].at(b);
      // One word from the root, one to the root, and the barrier between all pairs.
      const bool with_root = a == 2 || b == 2;
      EXPECT_EQ(moved.bytes_sent, with_root ? 4u : 0u) << a << " to " << b;
      EXPECT_EQ(moved.messages_sent, with_root ? 2u : 1u) << a << " to " << b;
    }
}

TEST(Metrics, BlocksOfDifferentSizesToTheByte) {
  for (const std::size_t scale : {std::size_t{3}, std::size_t{70001}}) {
    const auto all = added([&](Communicator& comm) {
      comm.set_algorithm(Collective::kAllToAll, "auto");
      // From r to s: scale * (r + s) elements; none from 0 to 1.
      const auto elements = [&](int r, int s) {
        return r == 0 && s == 1 ? 0 : scale * static_cast<std::size_t>(r + s);
      };
      std::vector<std::size_t> to, from;
      for (int p = 0; p < kRanks; ++p) {
        to.push_back(elements(comm.rank(), p));
        from.push_back(elements(p, comm.rank()));
      }
      std::vector<float> in(scale * 64), out(scale * 64);
      comm.all_to_all_v(in.data(), to, out.data(), from, DType::kFloat32).check();
    });
    for (Rank a = 0; a < kRanks; ++a)
      for (Rank b = 0; b < kRanks; ++b) {
        if (a == b) continue;
        const auto elements = a == 0 && b == 1 ? 0 : scale * static_cast<std::size_t>(a + b);
        const ByPeer& mine = all[static_cast<std::size_t>(a)];
        EXPECT_EQ(mine.contains(b) ? mine.at(b).bytes_sent : 0, elements * 4) << a << " to " << b;
      }
  }
}

// No rank knows the total size.
TEST(Metrics, AnAllToAllVHasTimesOfNoSize) {
  run_ranks(places({kRanks}), {.transport = "tcp"}, [&](World& world) {
    Communicator comm = world.world();
    std::vector<float> in(kRanks, 1), out(kRanks);
    const std::vector<std::size_t> ones(kRanks, 1);
    for (int i = 0; i < 3; ++i)
      comm.all_to_all_v(in.data(), {ones}, out.data(), {ones}, DType::kFloat32).check();
    comm.all_to_all(in.data(), out.data(), 1, DType::kFloat32).check();
    bool sized = false;
    for (const Metrics::Pick& p : world.metrics().picks) {
      sized |= p.collective == Collective::kAllToAll && p.bytes == kRanks * sizeof(float);
      EXPECT_LE(p.bytes, kRanks * sizeof(float)) << name(p.collective) << " " << p.algorithm;
    }
    EXPECT_TRUE(sized);
  });
}

// A queued call reports the algorithm that it will run.
TEST(Metrics, ACallThatWaitsItsTurnKeepsItsAlgorithm) {
  run_ranks(places({kRanks}), {.transport = "tcp"}, [&](World& world) {
    constexpr std::size_t kAhead = 12;  // more than run at once
    Communicator comm = world.world();
    std::vector<std::vector<float>> data(kAhead + 2, std::vector<float>(200, 1));
    std::vector<Request> handles;
    const auto start = [&](const char* algorithm, std::size_t count) {
      comm.set_algorithm(Collective::kAllReduce, algorithm);
      float* const d = data[handles.size()].data();
      handles.push_back(comm.all_reduce_async(d, d, count, DType::kFloat32, RedOp::kSum));
    };
    for (std::size_t i = 0; i < kAhead; ++i) start("ring", 100);
    start("ring", 200);
    start("direct", 50);
    for (Request& h : handles) h.wait().check();
    std::map<std::size_t, std::string> ran;
    for (const Metrics::Pick& p : world.metrics().picks)
      if (p.collective == Collective::kAllReduce && p.measured) ran[p.bytes] += p.algorithm + " ";
    EXPECT_EQ(ran, (std::map<std::size_t, std::string>{
                       {256, "direct "}, {512, "ring "}, {1024, "ring "}}));
  });
}

TEST(Metrics, ThePrometheusTextSaysTheSame) {
  run_ranks(places({kRanks}), {}, [&](World& world) {
    Communicator comm = world.world();
    std::vector<float> in(100000, 1), out(100000);
    for (const std::size_t count : {1ul, 100000ul})
      comm.all_reduce(in.data(), out.data(), count, DType::kFloat32, RedOp::kSum).check();
    // The root sends, and receives nothing.
    comm.broadcast(in.data(), out.data(), out.size(), DType::kFloat32, 0).check();
    const Metrics m = world.metrics();
    std::istringstream text(to_prometheus(m));
    std::map<std::string, std::string> samples;
    for (std::string line; std::getline(text, line);)
      if (!line.starts_with("#"))
        samples[line.substr(0, line.rfind(' '))] = line.substr(line.rfind(' ') + 1);
    EXPECT_FALSE(m.traffic.empty());
    for (const Metrics::Traffic& t : m.traffic) {
      const std::string labels =
          fmt::format("{{rank=\"{}\",peer=\"{}\",link=\"{}\"}}", m.rank, t.peer, t.link);
      EXPECT_EQ(samples["weft_sent_bytes_total" + labels], std::to_string(t.bytes_sent));
      EXPECT_EQ(samples["weft_received_bytes_total" + labels], std::to_string(t.bytes_received));
      EXPECT_EQ(samples["weft_sent_messages_total" + labels], std::to_string(t.messages_sent));
      EXPECT_EQ(samples["weft_received_messages_total" + labels],
                std::to_string(t.messages_received));
    }
    for (const Metrics::Calls& c : m.calls) {
      const std::string labels =
          fmt::format("{{rank=\"{}\",collective=\"{}\"}}", m.rank, name(c.collective));
      EXPECT_EQ(samples["weft_calls_total" + labels], std::to_string(c.calls));
      EXPECT_EQ(samples["weft_call_bytes_total" + labels], std::to_string(c.bytes));
    }
  });
}

}  // namespace
}  // namespace weft
