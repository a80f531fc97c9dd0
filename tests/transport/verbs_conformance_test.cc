// The verbs transport under the conformance suite, on this host's devices.
// labels: multiproc
#include <gtest/gtest.h>

#include "transport/conformance.h"
#include "transport/verbs.h"
#include "verbs_devices.h"

namespace weft::testing {
namespace {

std::vector<Maker> makers() {
  if (test_devices().empty()) return {};
  return {{"Device", [](int n) {
             return make_in_threads(n, [n](Job& job, Rank rank) {
               return make_verbs_transport(job, verbs_hosts(n), test_rail(rank));
             });
           }}};
}

INSTANTIATE_TEST_SUITE_P(Verbs, Conformance, ::testing::ValuesIn(makers()), maker_name);

TEST(Verbs, HasADevice) {
  if (test_devices().empty()) GTEST_SKIP() << "missing capability: RDMA device";
}

}  // namespace
}  // namespace weft::testing
