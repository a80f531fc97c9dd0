// The ucx transport under the conformance suite, over the loopback device.
// labels: multiproc
// ctest: alone
// sanitize: long
#include <gtest/gtest.h>

#if __has_include("transport/ucx/ucx.h")
#include "transport/conformance.h"
#include "transport/ucx/ucx.h"

namespace weft::testing {
namespace {

Endpoints endpoints_of(int n) {
  return make_in_threads(n, [n](Job& job, Rank rank) {
    const Topology topology = one_host(n);
    return make_ucx_transport(job, topology, topology.place(rank).rails[0]);
  });
}

INSTANTIATE_TEST_SUITE_P(Ucx, Conformance, ::testing::Values(Maker{"Loopback", endpoints_of}),
                         maker_name);

}  // namespace
}  // namespace weft::testing
#else
TEST(Ucx, Conformance) { GTEST_SKIP() << "missing capability: the ucx transport"; }
#endif
