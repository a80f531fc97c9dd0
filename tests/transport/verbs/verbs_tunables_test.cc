// Every queue pair tunable of verbs/settings.h, set by its variable and queried from the device;
// and the flow labels of a pair's queue pairs.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "topo/base/status.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs_net.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

TEST(FlowLabels, OfAPairDifferAndAreThoseOfTheOtherEnd) {
  for (Rank a = 0; a < 40; ++a)
    for (Rank b = 0; b < 40; ++b) {
      if (a == b) continue;
      std::set<std::uint32_t> labels;
      std::set<std::uint16_t> ports;
      for (int lane = 0; lane < 64; ++lane) {
        const std::uint32_t label = flow_label(a, b, lane);
        EXPECT_EQ(label, flow_label(b, a, lane));
        EXPECT_GT(label, 0u);
        EXPECT_LT(label, 1u << 20);
        labels.insert(label);
        ports.insert(udp_source_port(label));
      }
      EXPECT_EQ(labels.size(), 64u) << a << " " << b;
      EXPECT_EQ(ports.size(), 64u) << a << " " << b;
    }
}

// Queue pairs 0 of different pairs of ranks share a label only as often as random labels would.
TEST(FlowLabels, OfManyPairsAreSpread) {
  std::set<std::uint32_t> labels;
  int pairs = 0;
  for (Rank a = 0; a < 64; ++a)
    for (Rank b = 0; b < a; ++b, ++pairs) labels.insert(flow_label(a, b, 0));
  EXPECT_GT(labels.size(), static_cast<std::size_t>(pairs) - 20);  // 2016 of 2^20: 2 expected
}

class VerbsTunables : public OnVerbs {
 protected:
  void TearDown() override {
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
  }
  void set(const std::string& name, int value) {
    setenv(name.c_str(), std::to_string(value).c_str(), 1);
    set_[name] = value;
  }
  static ibv_qp_attr attributes(const VerbsQp& qp, ibv_qp_init_attr& init) {
    ibv_qp_attr a{};
    init = {};
    EXPECT_EQ(ibv_query_qp(qp.handle(), &a,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
                               IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER |
                               IBV_QP_PORT | IBV_QP_CAP | IBV_QP_MAX_QP_RD_ATOMIC,
                           &init),
              0);
    return a;
  }
  struct End {
    explicit End(Rank rank, const VerbsQpOptions& options)
        : device(test_rail(rank).name), cq(device, 4096, false), qp(device, cq, cq, options) {}
    VerbsDevice device;
    VerbsCq cq;
    VerbsQp qp;
  };
  // Two queue pairs, connected according to verbs_settings().
  struct Pair {
    explicit Pair(const VerbsQpOptions& options) : a(0, options), b(1, options) {
      path = verbs_path(a.device.port(), b.device.port(), "a");
      a.qp.connect(path, b.qp.name());
      b.qp.connect(verbs_path(b.device.port(), a.device.port(), "b"), a.qp.name());
    }
    End a, b;
    VerbsPath path;
  };
  std::map<std::string, int> set_;
};

// Each tunable is set to two values other than its default.
TEST_F(VerbsTunables, ReachTheQueuePair) {
  struct Values {
    int retry, timeout, rnr_retry, rnr_timer, mtu, traffic_class, gid;
  };
  // The device's GID table, for indices that are valid.
  const std::vector<Gid> gids = VerbsDevice(test_rail(0).name).port().gids;
  ASSERT_FALSE(gids.empty());
  for (const Values& v : {Values{3, 14, 2, 20, 512, 96, gids.front().index},
                          Values{5, 18, 4, 7, 256, 33, gids.back().index}}) {
    set("WEFT_VERBS_PORT", 1);
    set("WEFT_VERBS_RETRY_COUNT", v.retry);
    set("WEFT_VERBS_TIMEOUT", v.timeout);
    set("WEFT_VERBS_RNR_RETRY", v.rnr_retry);
    set("WEFT_VERBS_MIN_RNR_TIMER", v.rnr_timer);
    set("WEFT_VERBS_MTU", v.mtu);
    set("WEFT_VERBS_TRAFFIC_CLASS", v.traffic_class);
    set("WEFT_VERBS_GID_INDEX", v.gid);
    set("WEFT_VERBS_SL", v.retry);
    VerbsQpOptions options;
    options.send_depth = 40 + v.retry;
    options.recv_depth = 70 + v.retry;
    options.inline_bytes = 64;
    options.reads = 4;
    options.flow_label = flow_label(0, 1, v.retry);
    Pair pair(options);
    for (const End* end : {&pair.a, &pair.b}) {
      ibv_qp_init_attr init;
      const ibv_qp_attr a = attributes(end->qp, init);
      EXPECT_EQ(a.qp_state, IBV_QPS_RTS);
      EXPECT_EQ(a.port_num, 1);
      EXPECT_EQ(a.retry_cnt, v.retry);
      EXPECT_EQ(a.timeout, v.timeout);
      EXPECT_EQ(a.rnr_retry, v.rnr_retry);
      EXPECT_EQ(a.min_rnr_timer, v.rnr_timer);
      EXPECT_EQ(128 << static_cast<int>(a.path_mtu), v.mtu);
      EXPECT_EQ(a.max_rd_atomic, 4);
      EXPECT_GE(a.cap.max_send_wr, 40u + static_cast<unsigned>(v.retry));
      EXPECT_GE(a.cap.max_recv_wr, 70u + static_cast<unsigned>(v.retry));
      EXPECT_GE(a.cap.max_inline_data, 64u);
      EXPECT_GE(end->qp.inline_bytes(), 64);
      ASSERT_TRUE(a.ah_attr.is_global);
      EXPECT_EQ(a.ah_attr.grh.sgid_index, v.gid);
      EXPECT_EQ(a.ah_attr.grh.traffic_class, v.traffic_class);
      EXPECT_EQ(a.ah_attr.grh.flow_label, options.flow_label);
      EXPECT_GT(a.ah_attr.grh.hop_limit, 1) << "routed";
      // rdma_rxe drops the service level: its packets have no field for it.
      if (end->device.name().find("rxe") == std::string::npos) {
        EXPECT_EQ(a.ah_attr.sl, v.retry);
      }
      EXPECT_EQ(end->device.settings().service_level, v.retry);
    }
  }
}

TEST_F(VerbsTunables, DscpIsTheTrafficClass) {
  set("WEFT_VERBS_DSCP", 26);
  Pair pair({});
  ibv_qp_init_attr init;
  EXPECT_EQ(attributes(pair.a.qp, init).ah_attr.grh.traffic_class, 26 << 2);
}

TEST_F(VerbsTunables, RelaxedOrderingReachesRegistrations) {
  EXPECT_EQ(VerbsDevice(test_rail(0).name).relaxed(), IBV_ACCESS_RELAXED_ORDERING);
  set("WEFT_VERBS_RELAXED_ORDERING", 0);
  const VerbsDevice strict(test_rail(0).name);
  EXPECT_EQ(strict.relaxed(), 0);
  std::vector<std::byte> memory(4096);
  EXPECT_NE(VerbsMemory(strict, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE).lkey(), 0u);
}

TEST_F(VerbsTunables, WhatTheDeviceHasNotIsRefusedByName) {
  const std::string name = test_rail(0).name;
  set("WEFT_VERBS_GID_INDEX", 200);
  try {
    VerbsDevice device(name);
    FAIL() << "there is no entry 200";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("WEFT_VERBS_GID_INDEX=200"));
  }
  unsetenv("WEFT_VERBS_GID_INDEX");
  setenv("WEFT_VERBS_PKEY", "0x8002", 1);
  try {
    VerbsDevice device(name);
    FAIL() << "Soft-RoCE is in one partition";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("WEFT_VERBS_PKEY=0x8002"));
    EXPECT_THAT(e.what(), HasSubstr("0xffff"));
  }
  setenv("WEFT_VERBS_PKEY", "0x7fff", 1);
  EXPECT_EQ(VerbsDevice(name).port().pkey, 0xffff);
  unsetenv("WEFT_VERBS_PKEY");
  set("WEFT_VERBS_PORT", 9);
  try {
    VerbsDevice device(name);
    FAIL() << "there is no port 9";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("WEFT_VERBS_PORT"));
  }
}

}  // namespace
}  // namespace weft::testing
