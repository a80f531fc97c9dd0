// Invalid offers by the other end of `weft perf bw`; on a fake device.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "perf/pair/pair_link.h"
#include "support/fakes/fake_verbs.h"
#include "topo/base/status.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<PairLink> two_queue_pairs() {
  PairOptions options;
  options.qps = 2;
  Nic rail;
  rail.name = "fake";
  return make_verbs_pair(options, rail, 512);
}

TEST(VerbsPairOffer, ConnectsWhereItIsRight) {
  const auto mine = two_queue_pairs(), theirs = two_queue_pairs();
  mine->connect(theirs->offer());
  EXPECT_THAT(mine->path(), HasSubstr("RoCE v2 IPv4"));
}

TEST(VerbsPairOffer, IsRefusedWhereSomethingIsMissing) {
  const auto right = nlohmann::json::parse(two_queue_pairs()->offer());
  for (const auto& item : right.items()) {
    nlohmann::json wrong = right;
    wrong.erase(item.key());
    EXPECT_THROW(two_queue_pairs()->connect(wrong.dump()), Error) << item.key();
  }
  nlohmann::json fewer = right;
  fewer["qps"].erase(1);
  EXPECT_THROW(two_queue_pairs()->connect(fewer.dump()), Error);
  nlohmann::json half = right;
  half["qps"][1].erase(1);
  EXPECT_THROW(two_queue_pairs()->connect(half.dump()), Error);
}

TEST(VerbsPairOffer, IsRefusedWhereItMeansSomethingElse) {
  const auto right = nlohmann::json::parse(two_queue_pairs()->offer());
  for (const auto& item : right.items()) {
    nlohmann::json wrong = right;
    wrong[item.key()] = "zz";
    EXPECT_THROW(two_queue_pairs()->connect(wrong.dump()), Error) << item.key();
  }
  for (const char* text : {"", "{", "[]", "7"})
    EXPECT_THROW(two_queue_pairs()->connect(text), Error) << text;
}

}  // namespace
}  // namespace weft::testing
