// The verbs transport under the conformance suite, on this host's devices.
// labels: multiproc
// ctest: alone
// sanitize: long
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "transport/conformance.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs_devices.h"

namespace weft::testing {
namespace {

Endpoints endpoints(int n) {
  return make_in_threads(n, [n](Job& job, Rank rank) {
    return make_verbs_transport(job, verbs_hosts(n), test_rail(rank));
  });
}

// Sets small limits, so that every queue fills up, and uses several queue pairs.
constexpr std::pair<const char*, const char*> kScarce[] = {
    {"WEFT_VERBS_QPS", "3"},     {"WEFT_VERBS_SLOTS", "4"},       {"WEFT_VERBS_SLOT_BYTES", "1024"},
    {"WEFT_VERBS_WINDOWS", "2"}, {"WEFT_VERBS_SEND_DEPTH", "16"},
};

Endpoints scarce_endpoints(int n) {
  for (const auto& [variable, value] : kScarce) setenv(variable, value, 1);
  Endpoints made = endpoints(n);
  for (const auto& [variable, value] : kScarce) unsetenv(variable);
  return made;
}

std::vector<Maker> makers() {
  if (test_devices().empty()) return {};
  return {{"Device", endpoints}, {"Scarce", scarce_endpoints}};
}

INSTANTIATE_TEST_SUITE_P(Verbs, Conformance, ::testing::ValuesIn(makers()), maker_name);

TEST(Verbs, HasADevice) {
  if (test_devices().empty()) GTEST_SKIP() << "missing capability: RDMA device";
}

}  // namespace
}  // namespace weft::testing
