// Tests of the verbs transport with all ranks in this process; skipped without a device.
#pragma once

#include <gtest/gtest.h>

#include "transport/conformance.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs_devices.h"

namespace weft::testing {

class OnVerbs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_devices().empty()) GTEST_SKIP() << "missing capability: RDMA device";
  }
  static Net net(int n) {
    return Net(make_in_threads(n, [n](Job& job, Rank rank) {
      return make_verbs_transport(job, verbs_hosts(n), test_rail(rank));
    }));
  }
};

}  // namespace weft::testing
