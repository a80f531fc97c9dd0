// The verbs transport under the conformance suite on the fake device, wired to itself: a receiver
// that is not ready, a full queue, or a message to an unconnected peer aborts the program. With
// kOnePlace a rank has one place, so that connections are closed all the time.
// labels: multiproc
// ctest: alone
// sanitize: long
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "support/fakes/fake_verbs.h"
#include "support/fakes/forged_job.h"
#include "transport/conformance.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {
namespace {

using Variables = std::vector<std::pair<const char*, const char*>>;

const Variables kScarceHere = {
    {"WEFT_VERBS_QPS", "3"},     {"WEFT_VERBS_SLOTS", "4"},       {"WEFT_VERBS_SLOT_BYTES", "1024"},
    {"WEFT_VERBS_WINDOWS", "2"}, {"WEFT_VERBS_SEND_DEPTH", "16"},
};
const Variables kOnePlace = {{"WEFT_VERBS_CONNECTIONS", "1"}, {"WEFT_VERBS_SLOT_BYTES", "1024"}};

Maker wired(const char* name, const Variables& variables) {
  return {name, [variables](int n) {
            FakeVerbs& fake = FakeVerbs::get();
            fake.wired = true;
            for (const auto& [variable, value] : variables) setenv(variable, value, 1);
            Nic rail;
            rail.name = "fake";
            rail.rdma = rail.up = true;
            Endpoints made = make_in_threads(n, [&](Job& job, Rank) {
              return make_verbs_transport(job, separate_hosts(n, rail), rail);
            });
            for (const auto& [variable, value] : variables) unsetenv(variable);
            return made;
          }};
}

INSTANTIATE_TEST_SUITE_P(VerbsWired, Conformance,
                         ::testing::Values(wired("Plenty", {}), wired("Scarce", kScarceHere),
                                           wired("OnePlace", kOnePlace)),
                         maker_name);

}  // namespace
}  // namespace weft::testing
