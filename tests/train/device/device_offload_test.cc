// Offloading from a device: data in pinned memory or in a file returns unchanged, in stream order;
// training has the same bits, with less device memory.
// labels: sim
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fakes/fake_device.h"
#include "support/train/train_device_cases.h"
#include "support/train/train_on_device_cases.h"
#include "train/device/context.h"

namespace weft::train {
namespace {

class DeviceOffloading : public ::testing::Test {
 protected:
  void SetUp() override { use_fake_device(); }
};

using T = OnDevice<Bf16>;

Tensor<T> numbers(std::size_t count, float first) {
  std::vector<float> host(count);
  for (std::size_t i = 0; i < count; ++i) host[i] = first + static_cast<float>(i % 100);
  Tensor<T> t(count, Use::kActivations);
  from_host(t.data(), host.data(), count);
  return t;
}
void expect_numbers(const Tensor<T>& t, float first, const std::string& what) {
  std::vector<float> host(t.count());
  to_host(host.data(), t.data(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i)
    ASSERT_EQ(host[i], first + static_cast<float>(i % 100)) << what << ", element " << i;
}

TEST_F(DeviceOffloading, BringsBackWhatWasPut) {
  DeviceContext& context = DeviceContext::of_this_rank();
  for (const std::string& where : {std::string(DeviceOffload::kHost), ::testing::TempDir()}) {
    const std::size_t before = context.used();
    Offload<T> offload(where);
    for (int round = 0; round < 3; ++round)
      for (std::uint64_t key = 0; key < 4; ++key) {
        const float first = static_cast<float>(4 * round + static_cast<int>(key));
        std::vector<Tensor<T>> list;
        list.push_back(numbers(1000 + key, first));
        list.emplace_back();
        list.push_back(numbers(7, first + 1));
        offload.put(key, list);
        EXPECT_TRUE(list.empty());
        EXPECT_EQ(context.used(), before);
        // The memory is reused at once, so the offloaded data must have been read before.
        const Tensor<T> over = numbers(1000 + key, -50);
        if (key == 1) context.wait();             // arrived: the next call writes it to the file
        if (key % 2 == 0 && round < 2) continue;  // overwritten by the next put
        std::vector<Tensor<T>> again;
        offload.get(key, again);
        ASSERT_EQ(again.size(), 3u);
        EXPECT_TRUE(again[1].empty());
        EXPECT_EQ(again[0].use(), Use::kActivations);
        expect_numbers(again[0], first, where);
        expect_numbers(again[2], first + 1, where);
      }
    EXPECT_EQ(context.used(), before);
    EXPECT_GT(offload.bytes_moved(), 0u);
  }
}

// More than may be queued for the file: the first must be written, and is read from the file.
TEST_F(DeviceOffloading, ManyBytes) {
  Offload<T> offload(::testing::TempDir());
  constexpr std::size_t kEach = std::size_t{10} << 20;  // elements
  constexpr std::size_t kWays = 2;                      // there and back
  for (std::uint64_t key = 0; key < 5; ++key) {
    std::vector<Tensor<T>> list;
    list.push_back(numbers(kEach, static_cast<float>(key)));
    offload.put(key, list);
  }
  for (std::uint64_t key = 0; key < 5; ++key) {
    std::vector<Tensor<T>> list;
    offload.get(key, list);
    ASSERT_EQ(list.size(), 1u);
    expect_numbers(list[0], static_cast<float>(key), std::to_string(key));
  }
  EXPECT_EQ(offload.bytes_moved(), kWays * 5 * kEach * sizeof(T));
}

TEST_F(DeviceOffloading, NamesTheFolder) {
  try {
    Offload<T> offload("/nowhere");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("/nowhere: No such file or directory"));
  }
}

TEST_F(DeviceOffloading, ThePlaceMustBeElsewhere) {
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    const Text data = text();
    TrainOptions o = testing::tiny(1, 1, 1);
    o.offload = DeviceOffload::kHost;
    EXPECT_THROW((Trainer<float>(world, o, data)), UsageError);
  });
}

TEST_F(DeviceOffloading, TrainingIsTheSameWithLessMemory) {
  for (const std::string& where : {std::string(DeviceOffload::kHost), ::testing::TempDir()}) {
    TrainOptions o = testing::tiny(1, 1, 1);
    o.schedule = "gpipe";
    testing::expect_offloaded<Bf16>(o, where, 0.3);
    o.recompute = true;
    testing::expect_offloaded<Fp64>(o, where, 1);
  }
}
TEST_F(DeviceOffloading, InAllLayouts) {
  TrainOptions o = testing::tiny(2, 2, 2);
  o.zero = 1;
  testing::expect_offloaded<Bf16>(o, DeviceOffload::kHost, 1);
  o = testing::tiny(2, 1, 2);
  o.zero = 3;
  o.model.tied = false;
  o.schedule = "zero-bubble";
  testing::expect_offloaded<Fp32>(o, ::testing::TempDir(), 1);
}

// Checkpoints include offloaded state, which is offloaded again after they read it.
TEST_F(DeviceOffloading, GoesOnFromPieces) {
  testing::expect_pieces_go_on<Bf16>(1e-12, DeviceOffload::kHost);
  testing::expect_pieces_go_on<Fp64>(1e-12, ::testing::TempDir());
}

}  // namespace
}  // namespace weft::train
