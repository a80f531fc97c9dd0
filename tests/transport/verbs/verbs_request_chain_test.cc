// Tests VerbsRequestChain in isolation, on a queue pair that records what is posted.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "transport/verbs/request_chain.h"

namespace weft::testing {
namespace {

using Id = VerbsRequestId;

// Writes 'S' for a signaled request, '.' for another, and '|' after each chain.
struct Pair {
  Pair() {
    context.ops.post_send = [](ibv_qp* to, ibv_send_wr* first, ibv_send_wr** bad) {
      auto& pair = *static_cast<Pair*>(to->qp_context);
      *bad = pair.error ? first : nullptr;
      if (pair.error) return pair.error;
      for (const ibv_send_wr* wr = first; wr; wr = wr->next) {
        pair.posted += wr->send_flags & IBV_SEND_SIGNALED ? 'S' : '.';
        pair.last_id = wr->wr_id;
      }
      pair.posted += '|';
      return 0;
    };
    qp.context = &context;
    qp.qp_context = this;
  }
  VerbsChainPoster poster() { return {&qp, nullptr}; }

  ibv_context context{};
  ibv_qp qp{};
  int error = 0;
  std::string posted;
  std::uint64_t last_id = 0;
};

TEST(VerbsRequestChain, OneDoorbellPostsAChainAndEveryFewRequestsSignal) {
  Pair pair;
  VerbsRequestChain chain(3, 8, 4);
  chain.begin(pair.poster());
  for (int doorbell = 0; doorbell < 3; ++doorbell) {
    chain.add(&pair, 8, 1);
    chain.add(nullptr, 0, 0);
    EXPECT_EQ(chain.ring(), 0);
    EXPECT_TRUE(chain.empty());
  }
  EXPECT_EQ(pair.posted, "..|.S|..|");
  chain.add(nullptr, 0, 0);
  chain.signal();
  EXPECT_EQ(chain.ring(), 0);
  EXPECT_EQ(chain.ring(), 0);  // without requests there is no doorbell
  EXPECT_EQ(pair.posted, "..|.S|..|S|");
}

TEST(VerbsRequestChain, ACompletionCoversAllRequestsBeforeIt) {
  Pair pair;
  VerbsRequestChain chain(3, 4, 4);
  chain.begin(pair.poster());
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(chain.room());
    chain.add(nullptr, 0, 0);
  }
  EXPECT_FALSE(chain.room());
  EXPECT_EQ(chain.mark(4), 0);  // there is no room for the empty write
  EXPECT_EQ(chain.ring(), 0);
  EXPECT_EQ(pair.posted, "...S|");
  EXPECT_TRUE(chain.owns(pair.last_id));
  EXPECT_EQ(Id::pair_of(pair.last_id), 3u);
  chain.complete(pair.last_id);
  EXPECT_EQ(chain.done(), 4u);
  EXPECT_TRUE(chain.room());
}

// The number of a wr_id has 32 bits; the chain counts in 64.
TEST(VerbsRequestChain, NumbersWrap) {
  VerbsRequestChain chain(0, 1, 1);
  for (std::uint64_t turn = 1; turn <= 3; ++turn) {
    chain.complete(0x7fffffff);
    chain.complete(0xffffffff);
    EXPECT_EQ(chain.done(), turn << 32);
  }
}

TEST(VerbsRequestChain, MarkRequestsWhatNoSignalCovers) {
  Pair pair;
  VerbsRequestChain chain(0, 64, 16);
  chain.begin(pair.poster());
  for (int i = 0; i < VerbsRequestChain::kMost; ++i) chain.add(nullptr, 0, 0);
  chain.carries_payload();
  EXPECT_TRUE(chain.full());
  EXPECT_EQ(chain.mark(chain.payload()), 0);  // first posts the full chain
  EXPECT_EQ(pair.posted, std::string(15, '.') + "S|S|");
  EXPECT_EQ(chain.mark(chain.payload()), 0);  // it is requested already
  EXPECT_EQ(chain.posted(), 17u);
  EXPECT_EQ(chain.payload(), 16u);
}

TEST(VerbsRequestChain, ARefusalIsReturnedAndTheChainIsGone) {
  Pair pair;
  VerbsRequestChain chain(0, 64, 16);
  chain.begin(pair.poster());
  pair.error = ENOMEM;
  chain.add(nullptr, 0, 0);
  EXPECT_EQ(chain.ring(), ENOMEM);
  EXPECT_TRUE(chain.empty());
  EXPECT_EQ(chain.mark(1), ENOMEM);
}

TEST(VerbsRequestChain, CompletionsOfAnEarlierLifeAreNotItsOwn) {
  Pair pair;
  VerbsRequestChain chain(5, 64, 16);
  EXPECT_FALSE(chain.owns(Id::pack(5, 0)));
  chain.begin(pair.poster());
  chain.add(nullptr, 0, 0);
  chain.signal();
  EXPECT_EQ(chain.ring(), 0);
  const std::uint64_t before = pair.last_id;
  const std::uint64_t receive = chain.receive_id();
  chain.add(nullptr, 0, 0);
  chain.end();
  EXPECT_EQ(chain.done(), chain.posted());
  EXPECT_EQ(chain.ring(), 0);  // there is no queue pair: nothing is posted
  EXPECT_FALSE(chain.owns(before));
  chain.begin(pair.poster());
  EXPECT_FALSE(chain.owns(before));
  EXPECT_FALSE(chain.owns(receive));
  EXPECT_TRUE(chain.owns(chain.receive_id()));
  EXPECT_EQ(chain.posted(), 0u);
  EXPECT_EQ(pair.posted, "S|");
}

}  // namespace
}  // namespace weft::testing
