// labels: cuda
// Training on a GPU that all ranks share: the cases of device_training_test. Ranks are threads if a
// step has collectives only at its end, otherwise processes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "support/train/train_on_device_cases.h"
#include "transport/gpu/device.h"

namespace weft::train {
namespace {

class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "missing capability: " << missing_device();
  }
};

TEST_F(CudaTraining, Alone) { testing::expect_layout(testing::tiny(1, 1, 1), "alone"); }
TEST_F(CudaTraining, DataParallel) {
  for (const int zero : {0, 1, 2, 3}) {
    TrainOptions o = testing::tiny(2, 1, 1);
    o.zero = zero;
    testing::expect_layout(o, "zero " + std::to_string(zero));
  }
}
TEST_F(CudaTraining, Bf16FollowsFp32) { testing::expect_half<Bf16>(testing::tiny(1, 1, 1), 0.02); }
TEST_F(CudaTraining, Fp16WithLossScaling) {
  TrainOptions o = testing::tiny(2, 1, 1);
  o.loss_scale = 1024;
  testing::expect_half<Fp16>(o, 0.02);
}
TEST_F(CudaTraining, OverflowIsSkipped) { testing::expect_overflow_is_skipped(); }
TEST_F(CudaTraining, GoesOnFromPieces) { testing::expect_pieces_go_on<Bf16>(1e-12); }

TEST_F(CudaTraining, Offload) {
  for (const std::string& where : {std::string(DeviceOffload::kHost), ::testing::TempDir()}) {
    TrainOptions o = testing::tiny(1, 1, 1);
    o.schedule = "gpipe";
    testing::expect_offloaded<Bf16>(o, where, 0.3);
  }
}

TEST_F(CudaTraining, SameBits) {
  const Result alone = testing::train_deterministic<Bf16>(testing::tiny(1, 1, 1));
  for (const int zero : {0, 1, 2, 3}) {
    TrainOptions o = testing::tiny(2, 1, 1);
    o.zero = zero;
    testing::expect_same_bits(alone, testing::train_deterministic<Bf16>(o),
                              fmt::format("dp 2 ZeRO {}", zero));
  }
}

// Ranks with collectives inside a step are processes, as in weft train. Two tensor-parallel ranks
// hung on an H200 (docs/benchmarks/2026-11-27-gpu.md).
class CudaProcesses : public CudaTraining {
 protected:
  // The last loss of five steps in double precision.
  double last_loss(const std::string& flags) {
    const std::string log = folder_ / "log";
    std::filesystem::remove(log);
    const char* const moved = std::getenv("WEFT_BINARY");  // if weft was not built in this tree
    const Output out =
        run(fmt::format("CUDA_VISIBLE_DEVICES=0 CUDA_MODULE_LOADING=LAZY "
                        "{} train --type double --steps 5 --batch 8 --width 32 "
                        "--layers 2 --positions 16 --sample 0 --log {} {}",
                        moved ? moved : WEFT_BINARY, log, flags));
    EXPECT_EQ(out.exit_code, 0) << out.text;
    double loss = 0;
    std::ifstream in(log);
    for (std::string line; std::getline(in, line);) loss = nlohmann::json::parse(line)["loss"];
    return loss;
  }
  void expect_loss_of_the_processor(const std::string& flags) {
    EXPECT_NEAR(last_loss("--backend cuda " + flags) / last_loss("--backend cpu"), 1, 1e-10);
  }

 private:
  const testing::TemporaryFolder folder_;
};

TEST_F(CudaProcesses, TensorParallel) { expect_loss_of_the_processor("-N 2 --tp 2"); }
TEST_F(CudaProcesses, TensorParallelInSeedStyle) {
  expect_loss_of_the_processor("-N 2 --tp 2 --tp-style seed");
}
TEST_F(CudaProcesses, PipelineParallel) { expect_loss_of_the_processor("-N 2 --pp 2"); }
TEST_F(CudaProcesses, EightOnOneGpu) { expect_loss_of_the_processor("-N 8 --dp 2 --tp 2 --pp 2"); }

}  // namespace
}  // namespace weft::train
