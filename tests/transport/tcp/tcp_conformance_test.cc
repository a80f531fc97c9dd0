// The tcp transport under the conformance suite, over the loopback device.
// labels: multiproc
// ctest: alone
// sanitize: long
#include <gtest/gtest.h>

#include "transport/conformance.h"
#include "transport/tcp/tcp.h"

namespace weft::testing {
namespace {

Endpoints endpoints_of(int n) {
  Endpoints out = make_in_threads(n, [n](Job& job, Rank rank) {
    const Topology topology = one_host(n);
    return make_tcp_transport(job, topology, topology.place(rank).rails[0]);
  });
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, ::testing::Values(Maker{"Loopback", endpoints_of}),
                         maker_name);

}  // namespace
}  // namespace weft::testing
