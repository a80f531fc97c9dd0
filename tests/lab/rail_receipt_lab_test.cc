// A rail fails while only receipts are still unsent on it: the sender waits for the receipts, while
// the receiver has its results and does not poll. Needs root.
// labels: lab
// ctest: whole alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/runtime/internals.h"
#include "support/process/shell.h"
#include "tests/lab/shared_lab.h"

namespace {

using ::testing::HasSubstr;
using weft::DType;

// Longer than messages that are copied or that TCP sends without a receipt.
constexpr std::size_t kCount = 2100;
constexpr int kMessages = 2;  // one over each rail

// Two hosts of two rails. Rank 1 receives messages over a rail whose other direction is dead, and
// then does `then`.
int rank_main(const std::string& then) try {
  auto world = weft::World::from_environment();
  weft::Communicator all = world->world();
  std::vector<std::vector<std::int32_t>> data(kMessages, std::vector<std::int32_t>(kCount));
  const auto exchange = [&](std::int32_t value) {
    std::vector<weft::Request> handles;
    for (auto& d : data) {
      if (all.rank() == 0) d.assign(kCount, value);
      handles.push_back(all.rank() == 0 ? all.send_async(d.data(), kCount, DType::kInt32, 1)
                                        : all.recv_async(d.data(), kCount, DType::kInt32, 0));
    }
    for (auto& h : handles) h.wait().check();
    for (const auto& d : data)
      if (d != std::vector<std::int32_t>(kCount, value)) throw weft::Error("wrong data");
  };
  exchange(1);
  all.barrier().check();
  std::int32_t token = 0;
  if (all.rank() == 1) {
    // The switch drops frames for an unknown MAC address; the link stays up in both directions.
    const char* lose = "ip neigh replace 10.1.0.1 lladdr 02:00:00:00:00:99 dev rail1 nud permanent";
    if (std::system(lose) != 0) return 77;
    all.send(&token, 1, DType::kInt32, 0).check();
  } else {
    all.recv(&token, 1, DType::kInt32, 1).check();
  }
  exchange(2);
  if (all.rank() == 1 && then == "compute") sleep(12);
  if (then == "gather") (void)job_of(*world).all_gather("figures");
  if (all.rank() == 0) std::printf("rank 0 is through\n");
  return 0;
} catch (const std::exception& e) {
  std::printf("FAILED: %s\n", e.what());
  return 1;
}

void expect_well(const weft::Output& o) {
  if (o.exit_code == 77) GTEST_SKIP() << "missing capability: ip neigh";
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("rank 0 is through"));
}

class RailReceipt : public weft::testing::LabTest {
 protected:
  static weft::Output run_lab(const std::string& environment, const std::string& then) {
    const std::string name = lab(2, 2);
    weft::Output output =
        weft::run(fmt::format("{} WEFT_TIMEOUT_MS=8000 WEFT_LOG=warn timeout 120 {} lab netlab "
                              "--use {} -- {} --rank {} 2>&1",
                              environment, WEFT_BINARY, name,
                              std::filesystem::read_symlink("/proc/self/exe").string(), then));
    netlab("exec", name, "h2 ip neigh del 10.1.0.1 dev rail1");
    return output;
  }
};

TEST_F(RailReceipt, LostWhileTheReceiverEndsItsWorld) { expect_well(run_lab("", "leave")); }

// weft perf gathers like this after each size.
TEST_F(RailReceipt, LostWhileTheReceiverGathersOnTheControlPlane) {
  expect_well(run_lab("", "gather"));
}

TEST_F(RailReceipt, LostWhileTheReceiverComputesBesideAProgressThread) {
  expect_well(run_lab("WEFT_PROGRESS_THREAD=1", "compute"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--rank") return rank_main(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
