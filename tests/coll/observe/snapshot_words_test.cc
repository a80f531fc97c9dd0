// labels: fast
// The JSON snapshot of `weft doctor --json` uses names in place of numeric codes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coll/observe/rank_snapshot.h"

namespace weft {
namespace {

TEST(SnapshotWords, NameTheCollectiveItsTypeItsOperatorAndItsState) {
  RankSnapshot rank;
  OperationReport o;
  o.collective = Collective::kReduceScatter;
  o.type = DType::kBFloat16;
  o.op = RedOp::kMax;
  o.state = OpState::kFailed;
  rank.operations.push_back(o);
  const auto json = nlohmann::json::parse(encode(rank)).at("operations").at(0);
  EXPECT_EQ(json.at("collective"), "reduce_scatter");
  EXPECT_EQ(json.at("type"), "bfloat16");
  EXPECT_EQ(json.at("op"), "max");
  EXPECT_EQ(json.at("state"), "failed");
  const OperationReport again = decode_snapshot(encode(rank)).operations.at(0);
  EXPECT_EQ(again.collective, o.collective);
  EXPECT_EQ(again.type, o.type);
  EXPECT_EQ(again.op, o.op);
  EXPECT_EQ(again.state, o.state);
}

TEST(SnapshotWords, ThatNobodyKnowsAreRefused) {
  RankSnapshot rank;
  rank.operations.emplace_back();
  std::string text = encode(rank);
  const auto at = text.find("\"barrier\"");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_THROW(decode_snapshot(text.replace(at, 9, "\"no_such\"")), Error);
}

}  // namespace
}  // namespace weft
