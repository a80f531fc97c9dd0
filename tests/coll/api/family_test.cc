// labels: multiproc
// ctest: whole
// sanitize: long
// Blocks of different sizes, exchanges, concurrent calls over real transports, and refused
// arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/coll/calls.h"

namespace weft {
namespace {

using testing::expect_right;
using ::testing::HasSubstr;
using testing::InLayouts;
using testing::LayoutSetting;
using testing::places;
using testing::Question;
using testing::RankData;
using testing::run_ranks;

constexpr Collective kNew[] = {Collective::kReduce, Collective::kGather, Collective::kScatter,
                               Collective::kAllToAll};
constexpr Collective kUneven[] = {Collective::kAllGather, Collective::kReduceScatter,
                                  Collective::kGather, Collective::kScatter, Collective::kAllToAll};

class Family : public InLayouts {
 protected:
  static void run(const std::function<void(Communicator)>& body) {
    InLayouts::run([&](World& world) { body(world.world()); });
  }
};

TEST_P(Family, BlocksOfDifferentSizes) {
  run([](Communicator comm) {
    const int n = comm.size();
    for (const Collective c : kUneven)
      for (int kind = 0; kind < 4; ++kind)
        for (const bool in_place : {false, true}) {
          Question q{c, n, 0, DType::kInt32, RedOp::kSum, in_place, n / 2};
          q.counts.assign(static_cast<std::size_t>(n), std::vector<std::size_t>(n, 0));
          for (int r = 0; r < n; ++r)
            for (int s = 0; s < n; ++s)
              q.counts[static_cast<std::size_t>(r)][static_cast<std::size_t>(s)] =
                  kind == 0   ? static_cast<std::size_t>((r + s) * 7 % 11)
                  : kind == 1 ? (r + s == n - 1 ? 90001 : 0)
                  : kind == 2 ? 0
                              : static_cast<std::size_t>(1000 * (r + s) + 1);
          expect_right(comm, q, "auto");
          if (::testing::Test::HasFatalFailure()) return;
        }
  });
}

// The last rank's block comes first, a gap precedes each block, and rank 1's block is empty.
TEST_P(Family, BlocksInAnyOrderAndApart) {
  run([](Communicator comm) {
    const auto n = static_cast<std::size_t>(comm.size()),
               me = static_cast<std::size_t>(comm.rank());
    for (const std::size_t scale : {std::size_t{3}, std::size_t{20001}}) {
      std::vector<std::size_t> counts(n), at(n);
      std::size_t end = 0;
      for (std::size_t i = n; i-- > 0; end = at[i] + counts[i]) {
        counts[i] = i == 1 ? 0 : scale + i;
        at[i] = end + 2;
      }
      // Element k of rank r's buffer is 1000 r + k % 500.
      std::vector<std::int32_t> in(end), own(counts[me], -1), all(end, -1), wanted(end, -1);
      const auto element = [](std::size_t rank, std::size_t k) {
        return static_cast<std::int32_t>(1000 * rank + k % 500);
      };
      for (std::size_t k = 0; k < end; ++k) in[k] = element(me, k);
      const auto ranks = static_cast<std::int32_t>(n);
      for (const Reduction op : {Reduction(RedOp::kSum), Reduction(RedOp::kAvg), premul_sum(3)}) {
        comm.reduce_scatter_v(in.data(), own.data(), Blocks(counts, at), DType::kInt32, op).check();
        for (std::size_t k = 0; k < counts[me]; ++k) {
          std::int32_t sum = 0;
          for (std::size_t r = 0; r < n; ++r) sum += element(r, at[me] + k);
          ASSERT_EQ(own[k], op.op == RedOp::kAvg         ? sum / ranks
                            : op.op == RedOp::kPreMulSum ? 3 * sum
                                                         : sum);
        }
      }
      comm.all_gather_v(in.data(), all.data(), Blocks(counts, at), DType::kInt32).check();
      for (std::size_t r = 0; r < n; ++r)
        for (std::size_t k = 0; k < counts[r]; ++k) wanted[at[r] + k] = element(r, k);
      ASSERT_EQ(all, wanted) << "what lies between the blocks stays";
    }
  });
}

// All ranks exchange with all and themselves, in an order that would deadlock if sequential; some
// messages are empty.
TEST_P(Family, ExchangesProgressTogether) {
  run([](Communicator comm) {
    const int n = comm.size();
    const auto length = [](int from, int to) {
      return static_cast<std::size_t>((from + to) % 3 == 0 ? 0 : 40001 * ((from * 5 + to) % 3));
    };
    std::vector<std::vector<std::int32_t>> sent, received;
    for (int r = 0; r < n; ++r) {
      sent.emplace_back(length(comm.rank(), r), 100 * comm.rank() + r);
      received.emplace_back(length(r, comm.rank()), -1);
    }
    std::vector<Message> messages;
    for (int r = 0; r < n; ++r)
      messages.push_back(Message::to(r, sent[r].data(), sent[r].size(), DType::kInt32));
    for (int r = n - 1; r >= 0; --r)
      messages.push_back(Message::from(r, received[r].data(), received[r].size(), DType::kInt32));
    for (int times = 0; times < 3; ++times) {
      const Status s = comm.exchange(messages);
      ASSERT_TRUE(s.ok()) << s.to_string();
      for (int r = 0; r < n; ++r)
        for (const std::int32_t v : received[r]) ASSERT_EQ(v, 100 * r + comm.rank());
      for (auto& r : received) std::ranges::fill(r, -1);
    }
    Batch batch = comm.exchange_async(messages);
    while (!batch.test()) {
    }
    ASSERT_TRUE(batch.wait().ok());
    // An exchange matches individual calls of the other side, also of zero bytes.
    if (n < 2 || comm.rank() > 1) return;
    std::int64_t mine = comm.rank(), theirs = -1;
    const Rank peer = 1 - comm.rank();
    if (comm.rank() == 0) {
      const Message two[] = {Message::to(peer, nullptr, 0, DType::kInt64),
                             Message::to(peer, &mine, 1, DType::kInt64)};
      ASSERT_TRUE(comm.exchange(two).ok());
    } else {
      ASSERT_TRUE(comm.recv(nullptr, 0, DType::kInt64, peer).ok());
      ASSERT_TRUE(comm.recv(&theirs, 1, DType::kInt64, peer).ok());
      EXPECT_EQ(theirs, 0);
    }
  });
}

TEST_P(Family, ManyAtOnce) {
  run([](Communicator comm) {
    const int n = comm.size();
    std::vector<Question> questions;
    for (int k = 0; k < 3; ++k)
      for (const Collective c : kNew)
        questions.push_back(
            {c, n, k == 1 ? 30011u : 17u, DType::kUInt32, RedOp::kSum, false, k % n});
    std::vector<RankData> data;
    data.reserve(questions.size());
    std::vector<Request> handles;
    for (const Question& q : questions) {
      data.emplace_back(q, comm.rank());
      const RankData& d = data.back();
      const Collective c = q.collective;
      handles.push_back(
          c == Collective::kReduce   ? comm.reduce_async(d.in, d.out, q.count, q.type, q.op, q.root)
          : c == Collective::kGather ? comm.gather_async(d.in, d.out, q.count, q.type, q.root)
          : c == Collective::kScatter ? comm.scatter_async(d.in, d.out, q.count, q.type, q.root)
                                      : comm.all_to_all_async(d.in, d.out, q.count, q.type));
    }
    for (Request& h : handles) ASSERT_TRUE(h.wait().ok());
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i].check(), "") << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Family,
                         ::testing::Values(LayoutSetting{"shm1", {1}, 1, "shm"},
                                           LayoutSetting{"shm3", {3}, 1, "auto"},
                                           LayoutSetting{"shm4", {4}, 1, "auto"},
                                           LayoutSetting{"mixed2x2", {2, 2}, 2, "auto"},
                                           LayoutSetting{"uneven", {2, 1}, 1, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FamilyErrors, NameTheValueAndTheRemedy) {
  run_ranks(places({2}), {}, [](World& world) {
    Communicator comm = world.world();
    float f[8] = {};
    std::uint8_t b[8] = {};
    const auto refused = [](const Status& s, const char* what) {
      EXPECT_EQ(s.code(), Code::kInvalidArgument);
      EXPECT_THAT(s.to_string(), HasSubstr(what));
    };
    refused(comm.all_reduce(f, f, 4, DType::kFloat32, RedOp::kBitAnd),
            "bit_and is not defined for float; use an integer type");
    refused(comm.all_reduce(b, b, 4, DType::kBool, RedOp::kAvg), "avg is not defined for bool");
    refused(comm.all_reduce(b, b, 4, DType::kUInt8, premul_sum(0.5)), "factor 0.5");
    refused(comm.reduce(f, f + 1, 4, DType::kFloat32, RedOp::kSum, comm.rank()), "overlap");
    refused(comm.reduce(f, nullptr, 4, DType::kFloat32, RedOp::kSum, comm.rank()), "out is null");
    refused(comm.gather(f, f, 1, DType::kFloat32, 2), "root 2");
    refused(comm.all_to_all(f, f + 1, 2, DType::kFloat32), "in == out");
    const std::vector<std::size_t> three{1, 1, 1}, two{2, 2}, at{0, 1};
    float out[8];
    refused(comm.all_gather_v(f, out, three, DType::kFloat32), "counts has 3 entries");
    refused(comm.all_gather_v(f, out, Blocks(two, at), DType::kFloat32),
            "blocks of ranks 0 and 1 overlap");
    // In place the own block is written while other blocks are still being sent; out of place the
    // blocks may overlap.
    refused(
        comm.reduce_scatter_v(f, f + comm.rank(), Blocks(two, at), DType::kFloat32, RedOp::kSum),
        "blocks of ranks 0 and 1 overlap");
    EXPECT_TRUE(comm.reduce_scatter_v(f, out, Blocks(two, at), DType::kFloat32, RedOp::kSum).ok());
    refused(comm.all_to_all_v(f, two, out, three, DType::kFloat32), "recv_counts has 3");
    const std::vector<std::size_t> huge{~std::size_t{0} / 8, ~std::size_t{0} / 8};
    refused(comm.scatter_v(f, out, huge, DType::kFloat64, 0), "more than memory");
    const Message alone[] = {Message::to(comm.rank(), f, 1, DType::kFloat32)};
    refused(comm.exchange(alone), "as many of both");
    // Later calls work as if the refused calls had not been made.
    EXPECT_TRUE(comm.barrier().ok());
  });
}

// Every transport refuses the call with the same error, and the job continues.
TEST(FamilyErrors, ToItselfARankSendsInAnExchangeOnly) {
  for (const char* transport : {"shm", "tcp"})
    run_ranks(places({1, 1}), {.transport = transport}, [](World& world) {
      Communicator comm = world.world();
      const Rank me = comm.rank();
      float f[2] = {};
      const auto refused = [](const Status& s) {
        EXPECT_EQ(s.code(), Code::kInvalidArgument);
        EXPECT_THAT(s.to_string(), HasSubstr("as many of both, in one exchange"));
      };
      refused(comm.send_async(f, 1, DType::kFloat32, me).wait());
      refused(comm.recv_async(f + 1, 1, DType::kFloat32, me).wait());
      EXPECT_TRUE(comm.barrier().ok());
    });
}

}  // namespace
}  // namespace weft
