// The shm transport under the conformance suite, with malloc memory going by size, through slots
// only, and by cross-memory attach only.
// labels: multiproc
// ctest: alone
#include <gtest/gtest.h>

#if __has_include("transport/shm.h")
#include <cstdlib>
#include <numeric>

#include "transport/conformance.h"
#include "transport/shm.h"

namespace weft::testing {
namespace {

Maker maker(std::string name, const char* copy) {
  return {std::move(name), [copy](int n) {
            setenv("WEFT_SHM_COPY", copy, 1);
            return make_in_threads(n, [n](Job& job, Rank) {
              std::vector<Rank> members(static_cast<std::size_t>(n));
              std::iota(members.begin(), members.end(), 0);
              return make_shm_transport(job, one_host(n), members);
            });
          }};
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         ::testing::Values(maker("BySize", "auto"), maker("Slots", "slots")),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(ShmAttach, Conformance, ::testing::Values(maker("Attach", "cma")),
                         maker_name);

// A rank that gives an operation up and uses its buffer again must not spoil, unseen, what a peer
// still reads there.
TEST(ShmViews, BytesTakenBackWhileLentAreNotTakenAsRead) {
  setenv("WEFT_SHM_COPY", "auto", 1);
  Net net(maker("", "auto").make(2));
  for (const bool given_up : {false, true}) {
    Buffer from(50000, Memory::kAlloc);
    from.fill(7);
    net[0].send(1, 5 + given_up, from);
    const std::uint64_t got =
        net[1].post(Transfer::Kind::kView, 0, 5 + given_up, nullptr, from.bytes());
    ASSERT_TRUE(net.until([&] { return net[1].done(got); }));
    if (given_up) net[0].cancel(1);
    EXPECT_EQ(net[1].transport().release(net[1].result(got).token), !given_up);
  }
}

}  // namespace
}  // namespace weft::testing
#else
TEST(Shm, Conformance) { GTEST_SKIP() << "missing capability: the shm transport"; }
#endif
