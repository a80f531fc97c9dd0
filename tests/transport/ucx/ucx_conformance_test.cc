// The ucx transport under the conformance suite, over the loopback device: with the settings of
// weft, and with a rendezvous for all but the shortest messages, as RDMA devices have it.
// labels: multiproc
// ctest: alone
#include <gtest/gtest.h>

#if __has_include("transport/ucx/ucx.h")
#include <cstdlib>

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

Endpoints with_rendezvous(int n) {
  setenv("UCX_RNDV_THRESH", "2k", 1);
  Endpoints made = endpoints_of(n);
  unsetenv("UCX_RNDV_THRESH");
  return made;
}

INSTANTIATE_TEST_SUITE_P(Ucx, Conformance,
                         ::testing::Values(Maker{"Loopback", endpoints_of},
                                           Maker{"Rendezvous", with_rendezvous}),
                         maker_name);

}  // namespace
}  // namespace weft::testing
#else
TEST(Ucx, Conformance) { GTEST_SKIP() << "missing capability: the ucx transport"; }
#endif
