// labels: multiproc
// ctest: whole
// Blocks of different sizes in device memory, which GPUs of a host read in place. Random sizes and
// layouts, on the fake device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::patient;
using testing::places;
using testing::run_ranks;
using testing::TestStream;

using Counts = std::vector<std::size_t>;
using Values = std::vector<std::int64_t>;

constexpr DType kInt = DType::kInt64;

// Element i of the data from `from` to `to`.
std::int64_t block_value(Rank from, Rank to, std::size_t i) {
  return from * 1'000'000'000'000 + to * 1'000'000'000LL + static_cast<std::int64_t>(i);
}

std::vector<std::byte> as_bytes(const Values& v) {
  std::vector<std::byte> bytes(v.size() * 8);
  if (!v.empty()) std::memcpy(bytes.data(), v.data(), bytes.size());
  return bytes;
}

// Random layout of blocks of these sizes in a buffer: in any order, with gaps.
struct BlockLayout {
  BlockLayout(const Counts& sizes, std::mt19937& dice) : counts(sizes), offsets(sizes.size()) {
    std::vector<std::size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, dice);
    for (const std::size_t b : order) {
      end += dice() % 3;
      offsets[b] = end;
      end += counts[b];
    }
  }
  Blocks blocks() const { return {counts, offsets}; }
  void put(Values& buffer, std::size_t block, Rank from, Rank to) const {
    for (std::size_t i = 0; i < counts[block]; ++i)
      buffer[offsets[block] + i] = block_value(from, to, i);
  }
  Counts counts, offsets;
  std::size_t end = 0;
};

// One rank's calls. Buffers without elements are null.
class Uneven {
 public:
  Uneven(World& world, bool on_stream)
      : me_(world.rank()),
        n_(static_cast<std::size_t>(world.size())),
        work_(*device(), world.rank() % FakeDevice::kGpus),
        comm_(on_stream ? world.world().on(work_.get()) : world.world()) {}

  // Sizes, which all ranks know, are drawn from `shared`, and layouts from `own`.
  void run(std::mt19937& shared, std::mt19937& own, std::size_t longest) {
    Counts sizes(n_);
    for (std::size_t& s : sizes) s = shared() % 3 == 0 ? 0 : shared() % (longest + 1);
    const auto root = static_cast<Rank>(shared() % n_);
    const BlockLayout all(sizes, own);
    const std::size_t mine = sizes[static_cast<std::size_t>(me_)];
    gather(all, mine, root);
    scatter(all, mine, root);
    reduce_scatter(all, mine);
    exchange(shared, own, longest);
  }
  std::string path() const { return std::string(comm_.last_algorithm()); }

 private:
  void* at(DeviceBuffer& b) const { return b.size() ? b.data() : nullptr; }
  // Runs `call(in, out)`; afterwards `out` must equal `want`, and `in` must be unchanged.
  template <class Call>
  void check(const char* what, const Values& in, const Values& out, const Values& want,
             const Call& call) {
    DeviceBuffer from(work_, in.size() * 8, 8), to(work_, out.size() * 8);
    from.put(as_bytes(in));
    to.put(as_bytes(out));
    const Status s = call(at(from), at(to));
    ASSERT_TRUE(s.ok()) << what << ": " << s.to_string();
    work_.wait();
    EXPECT_TRUE(to.get() == as_bytes(want)) << what << ", rank " << me_;
    EXPECT_TRUE(from.get() == as_bytes(in)) << what << " changed its input";
    EXPECT_TRUE(from.intact_around() && to.intact_around()) << what;
  }

  void gather(const BlockLayout& all, std::size_t mine, Rank root) {
    Values in(mine), empty(all.end, -1), want = empty;
    for (std::size_t i = 0; i < mine; ++i) in[i] = block_value(me_, 0, i);
    for (std::size_t r = 0; r < n_; ++r) all.put(want, r, static_cast<Rank>(r), 0);
    check("all_gather_v", in, empty, want,
          [&](void* a, void* b) { return comm_.all_gather_v(a, b, all.blocks(), kInt); });
    const bool at_root = me_ == root;
    check("gather_v", in, at_root ? empty : Values{}, at_root ? want : Values{},
          [&](void* a, void* b) { return comm_.gather_v(a, b, all.blocks(), kInt, root); });
  }
  void scatter(const BlockLayout& all, std::size_t mine, Rank root) {
    Values in, want(mine);
    if (me_ == root) {
      in.assign(all.end, -1);
      for (std::size_t r = 0; r < n_; ++r) all.put(in, r, root, static_cast<Rank>(r));
    }
    for (std::size_t i = 0; i < mine; ++i) want[i] = block_value(root, me_, i);
    check("scatter_v", in, Values(mine, -1), want,
          [&](void* a, void* b) { return comm_.scatter_v(a, b, all.blocks(), kInt, root); });
  }
  void reduce_scatter(const BlockLayout& all, std::size_t mine) {
    Values in(all.end, -1), want(mine, 0);
    for (std::size_t r = 0; r < n_; ++r) all.put(in, r, me_, static_cast<Rank>(r));
    for (std::size_t i = 0; i < mine; ++i)
      for (std::size_t r = 0; r < n_; ++r) want[i] += block_value(static_cast<Rank>(r), me_, i);
    check("reduce_scatter_v", in, Values(mine, -1), want, [&](void* a, void* b) {
      return comm_.reduce_scatter_v(a, b, all.blocks(), kInt, RedOp::kSum);
    });
    // In place: the result replaces this rank's block.
    DeviceBuffer data(work_, in.size() * 8);
    data.put(as_bytes(in));
    std::byte* const own = data.data() + all.offsets[static_cast<std::size_t>(me_)] * 8;
    const Status s = comm_.reduce_scatter_v(at(data), own, all.blocks(), kInt, RedOp::kSum);
    ASSERT_TRUE(s.ok()) << s.to_string();
    work_.wait();
    EXPECT_TRUE(std::memcmp(data.get().data() + (own - data.data()), want.data(), mine * 8) == 0);
  }
  void exchange(std::mt19937& shared, std::mt19937& own, std::size_t longest) {
    std::vector<Counts> sent(n_, Counts(n_));
    for (Counts& row : sent)
      for (std::size_t& s : row) s = shared() % 3 == 0 ? 0 : shared() % (longest + 1);
    Counts received;
    for (const Counts& row : sent) received.push_back(row[static_cast<std::size_t>(me_)]);
    const BlockLayout to(sent[static_cast<std::size_t>(me_)], own), from(received, own);
    Values in(to.end, -1), out(from.end, -1), want = out;
    for (std::size_t r = 0; r < n_; ++r) {
      to.put(in, r, me_, static_cast<Rank>(r));
      from.put(want, r, static_cast<Rank>(r), me_);
    }
    check("all_to_all_v", in, out, want, [&](void* a, void* b) {
      return comm_.all_to_all_v(a, to.blocks(), b, from.blocks(), kInt);
    });
  }

  const Rank me_;
  const std::size_t n_;
  TestStream work_;
  Communicator comm_;
};

class DeviceUneven : public testing::OnFakeDevice {};

void run_random(const std::vector<int>& hosts, const std::string& path, std::size_t longest,
                unsigned seeds = 6) {
  for (const bool on_stream : {true, false})
    run_ranks(places(hosts), patient(), [&](World& world) {
      Uneven ranks(world, on_stream);
      for (unsigned seed = 1; seed <= seeds; ++seed) {
        std::mt19937 shared(seed), own(seed * 100 + static_cast<unsigned>(world.rank()));
        ranks.run(shared, own, longest);
        if (::testing::Test::HasFatalFailure()) return;
        EXPECT_EQ(ranks.path(), path) << "of the last, an all_to_all_v";
      }
    });
}

TEST_F(DeviceUneven, GpusOfAHostReadEachOthersBlocks) {
  for (const std::vector<int>& hosts : {std::vector<int>{2}, std::vector<int>{5}})
    for (const std::size_t longest : {3, 5000}) run_random(hosts, "device", longest);
  run_random({3}, "device", 250'000, 1);  // several slices on a stream; fewer for short blocks
}

TEST_F(DeviceUneven, OthersAreStaged) {
  run_random({2, 1}, "staged", 5000);
  fake_->separate(true);
  run_random({3}, "staged", 5000);
}

// Long blocks bypass host memory.
TEST_F(DeviceUneven, NothingIsCopiedToTheHost) {
  run_ranks(places({3}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    for (const bool on_stream : {true, false}) {
      Communicator comm = on_stream ? world.world().on(work.get()) : world.world();
      const Counts counts = {700'000, 0, 900'000};
      const std::size_t mine = counts[static_cast<std::size_t>(world.rank())];
      DeviceBuffer block(work, mine * 8), all(work, 1'600'000 * 8);
      ASSERT_TRUE(world.world().barrier().ok());
      const std::size_t before = fake.host_copies();
      ASSERT_TRUE(world.world().barrier().ok());
      ASSERT_TRUE(comm.all_gather_v(block.data(), all.data(), counts, kInt).ok());
      ASSERT_TRUE(comm.reduce_scatter_v(all.data(), block.data(), counts, kInt, RedOp::kSum).ok());
      work.wait();
      ASSERT_TRUE(world.world().barrier().ok());
      EXPECT_EQ(fake.host_copies(), before) << on_stream;
      ASSERT_TRUE(world.world().barrier().ok());
    }
  });
}

TEST_F(DeviceUneven, WhoseBlocksDifferIsNamed) {
  run_ranks(places({3}), patient(), [](World& world) {
    TestStream work(*device(), world.rank());
    DeviceBuffer in(work, 4000), out(work, 4000);
    const Counts sent = {100, 100, 100};
    Counts received = sent;
    if (world.rank() == 1) received[2] = 99;
    const Status s = world.world().all_to_all_v(in.data(), sent, out.data(), received, kInt);
    const Status after = s.ok() ? world.world().barrier() : s;
    EXPECT_EQ(after.code(), Code::kMismatch) << after.to_string();
    for (const char* said : {"rank 1", "rank 2", "99", "100"})
      EXPECT_NE(after.message().find(said), std::string::npos) << after.message();
  });
}

}  // namespace
}  // namespace weft
