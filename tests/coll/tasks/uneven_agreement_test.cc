// labels: multiproc
// ctest: whole
// Blocks of different sizes on which ranks disagree: all ranks get the same error, which shows both
// sides and the mismatched count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include "coll/api/communicator.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;
using Counts = std::vector<std::size_t>;

class UnevenAgreement : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { n_ = static_cast<std::size_t>(testing::ranks_of(GetParam())); }

  // Makes some calls in which all ranks agree, then a mismatched one; every rank gets the same
  // error, which is returned.
  std::string run(const std::function<Status(Communicator&, bool odd)>& call) {
    std::vector<std::string> messages(n_);
    WorldOptions options;
    options.transport = GetParam().transport;
    options.timeout = std::chrono::seconds(60);  // far above the expected time
    run_ranks(places(GetParam().hosts), options, [&](World& world) {
      Communicator comm = world.world();
      Status s;
      for (int i = 0; i < 3 && s.ok(); ++i) s = call(comm, false);
      EXPECT_TRUE(s.ok() || s.code() == Code::kMismatch) << s.to_string();
      const bool odd = comm.rank() + 1 == comm.size();
      if (s.ok()) s = call(comm, odd);
      // Successful ranks get the error in their next calls.
      for (int i = 0; i < 3 && s.ok(); ++i) s = call(comm, false);
      for (int i = 0; i < 2 && s.ok(); ++i) s = comm.barrier();
      EXPECT_EQ(s.code(), Code::kMismatch) << "rank " << comm.rank() << ": " << s.to_string();
      messages[static_cast<std::size_t>(comm.rank())] = s.message();
    });
    for (const std::string& m : messages) EXPECT_EQ(m, messages[0]);
    return messages[0];
  }
  static void expect(const std::string& message, const std::string& pattern) {
    EXPECT_TRUE(std::regex_search(message, std::regex(pattern)))
        << message << "\n  is not " << pattern;
  }
  // Counts by rank, in elements: 0 for rank 1, while other ranks still exchange data.
  Counts counts(std::size_t scale) const {
    Counts c(n_);
    for (std::size_t i = 0; i < n_; ++i) c[i] = i == 1 && n_ > 2 ? 0 : scale * (i + 1);
    return c;
  }

  std::size_t n_ = 0;
};

constexpr std::size_t kFew = 10, kMany = 30000;

// "rank A <verb> x, rank B passed y" with the odd rank on either side.
std::string either(const std::string& before, const std::string& usual, const std::string& odd) {
  return fmt::format(
      "{0}(rank \\d+ passed {1}{2}, rank \\d+ passed {3}|rank \\d+ passed {1}{3}, "
      "rank \\d+ passed {2})",
      before, "counts\\[\\d+\\] = ", usual, odd);
}

TEST_P(UnevenAgreement, OneCountOfAGather) {
  for (const std::size_t scale : {kFew, kMany}) {
    const std::string m = run([&](Communicator& comm, bool odd) {
      Counts c = counts(scale);
      if (odd) c[0] += 7;
      std::vector<float> own(n_ * scale * 2 + 7), all(n_ * n_ * scale * 2 + 7);
      return comm.all_gather_v(own.data(), all.data(), c, DType::kFloat32);
    });
    expect(m, "^all_gather_v #\\d+ of float32: ");
    expect(m, either("", std::to_string(scale), std::to_string(scale + 7)));
    expect(m, "counts\\[0\\]");
  }
}

TEST_P(UnevenAgreement, TwoCountsThatChangedPlaces) {
  const std::string m = run([&](Communicator& comm, bool odd) {
    Counts c = counts(kFew);
    if (odd) std::swap(c[0], c[n_ - 1]);
    std::vector<float> own(1000), all(10000);
    return comm.reduce_scatter_v(all.data(), own.data(), c, DType::kFloat32, RedOp::kSum);
  });
  const std::size_t last = kFew * n_;
  expect(m,
         fmt::format("^reduce_scatter_v #\\d+ of float32: rank \\d+ passed counts\\[0\\] = {1} and "
                     "counts\\[{2}\\] = {0}, rank \\d+ passed {0} and {1}$|"
                     "passed counts\\[0\\] = {0} and counts\\[{2}\\] = {1}, rank \\d+ passed {1} "
                     "and {0}$",
                     last, kFew, n_ - 1));
}

TEST_P(UnevenAgreement, AnotherTypeOrOperatorOrRoot) {
  std::string m = run([&](Communicator& comm, bool odd) {
    std::vector<double> own(1000), all(10000);
    return comm.all_gather_v(own.data(), all.data(), counts(kFew),
                             odd ? DType::kInt32 : DType::kFloat32);
  });
  expect(m, "^all_gather_v #\\d+: rank \\d+ passed \\d+ x float32, rank \\d+ passed \\d+ x int32$");
  m = run([&](Communicator& comm, bool odd) {
    std::vector<double> own(1000), all(10000);
    return comm.reduce_scatter_v(all.data(), own.data(), counts(kFew), DType::kFloat32,
                                 odd ? RedOp::kMax : RedOp::kSum);
  });
  expect(m,
         "^reduce_scatter_v #\\d+ of \\d+ x float32: rank \\d+ passed sum, rank \\d+ passed max$");
  m = run([&](Communicator& comm, bool odd) {
    std::vector<float> own(1000), all(10000);
    const Rank root = odd ? comm.size() - 1 : 0;
    return comm.scatter_v(all.data(), own.data(), counts(kFew), DType::kFloat32, root);
  });
  expect(m, fmt::format("^scatter_v #\\d+ of \\d+ x float32: rank \\d+ passed root 0, "
                        "rank \\d+ passed root {}$",
                        n_ - 1));
}

TEST_P(UnevenAgreement, WithTheEvenForm) {
  const std::string m = run([&](Communicator& comm, bool odd) {
    std::vector<float> own(1000), all(10000);
    return odd ? comm.all_gather(own.data(), all.data(), kFew, DType::kFloat32)
               : comm.all_gather_v(own.data(), all.data(), Counts(n_, kFew), DType::kFloat32);
  });
  expect(m,
         "rank \\d+ called all_gather_v #\\d+ of \\d+ x float32, "
         "rank \\d+ called all_gather #\\d+ of 10 x float32$");
}

// A count that the receiver does not expect: the error shows both.
TEST_P(UnevenAgreement, APairOfAnAllToAll) {
  for (const std::size_t scale : {kFew, kMany})
    for (const bool none : {false, true}) {
      const auto last = static_cast<Rank>(n_) - 1;
      const std::string m = run([&](Communicator& comm, bool odd) {
        // From r to s: scale * (r + 2 s + 1) elements.
        Counts to(n_), from(n_);
        const auto me = static_cast<std::size_t>(comm.rank());
        for (std::size_t r = 0; r < n_; ++r) {
          to[r] = scale * (me + 2 * r + 1);
          from[r] = scale * (r + 2 * me + 1);
        }
        if (odd) from[0] = none ? 0 : from[0] + 1;  // the last rank's count for rank 0
        std::vector<float> in(n_ * n_ * scale * 4), out(in.size() + 1);
        return comm.all_to_all_v(in.data(), to, out.data(), from, DType::kFloat32);
      });
      const std::size_t sent = scale * (2 * (n_ - 1) + 1);
      expect(m, fmt::format("^all_to_all_v #\\d+: from rank 0 to rank {0}: rank 0 sends {1} x "
                            "float32, rank {0} expects {2} x float32$",
                            last, sent, none ? 0 : sent + 1));
    }
}

// A rank knows both sides of its message to itself.
TEST(UnevenAllToAll, TheOwnBlockHasOneSize) {
  for (const int ranks : {1, 2})
    for (const char* transport : {"auto", "tcp"}) {
      WorldOptions options;
      options.transport = transport;
      testing::run_ranks(testing::places({ranks}), options, [&](World& world) {
        Communicator comm = world.world();
        const auto n = static_cast<std::size_t>(comm.size());
        const auto me = static_cast<std::size_t>(comm.rank());
        Counts to(n, 1), from(n, 1);
        to[me] = 4;
        from[me] = 2;
        std::vector<std::int32_t> in(n + 3, 7), out(n + 3, -1);
        const Status s = comm.all_to_all_v(in.data(), to, out.data(), from, DType::kInt32);
        EXPECT_EQ(s.code(), Code::kInvalidArgument) << s.to_string();
        EXPECT_NE(s.message().find(fmt::format("send_counts[{0}] is 4, recv_counts[{0}] is 2", me)),
                  std::string::npos)
            << s.message();
        EXPECT_EQ(out, std::vector<std::int32_t>(n + 3, -1)) << "nothing beyond the block either";
        from[me] = 4;
        EXPECT_TRUE(comm.all_to_all_v(in.data(), to, out.data(), from, DType::kInt32).ok());
      });
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, UnevenAgreement,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm4", {4}, "auto"},
                                           Setting{"mixed2x2", {2, 2}, "auto"},
                                           Setting{"tcp3", {1, 1, 1}, "tcp"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
