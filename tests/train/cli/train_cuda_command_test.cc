// `weft train --backend cuda` on real processes that share a GPU (the fake one, whose memory they
// map from each other), and the error if there is no GPU.
// labels: multiproc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "train/device/peaks.h"
#include "train/model/mfu.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class TrainCuda : public ::testing::Test {
 protected:
  Output train(const std::string& flags, const std::string& device = "fake") {
    return run(
        fmt::format("WEFT_DEVICE={} {} train --batch 8 --width 16 --heads 4 --layers 2 "
                    "--positions 8 --sample 0 --log {}/log {}",
                    device, WEFT_WITH_FAKES, folder_.path(), flags));
  }
  std::map<int, nlohmann::json> steps() {
    std::map<int, nlohmann::json> all;
    std::ifstream in(folder_ / "log");
    for (std::string line; std::getline(in, line);) {
      const auto step = nlohmann::json::parse(line);
      all[step["step"]] = step;
    }
    fs::remove(folder_ / "log");
    return all;
  }
  const testing::TemporaryFolder folder_;
};

TEST_F(TrainCuda, EightProcessesOnOneGpu) {
  const Output one = train("--backend cpu --type double --steps 4");
  ASSERT_EQ(one.exit_code, 0) << one.text;
  const auto want = steps();
  const Output eight = train(
      "--backend cuda --type double --steps 4 -N 8 --dp 2 --tp 2 --pp 2 --zero 1 "
      "--peak-tflops 1");
  ASSERT_EQ(eight.exit_code, 0) << eight.text;
  const auto got = steps();
  ASSERT_EQ(want.size(), 4u);
  ASSERT_EQ(got.size(), 4u);
  for (const auto& [step, line] : want) {
    const double a = line["loss"], b = got.at(step)["loss"];
    EXPECT_NEAR(b / a, 1, 1e-10) << step;
    EXPECT_GT(got.at(step)["mfu"], 0);
    EXPECT_FALSE(line.contains("mfu"));
  }
  EXPECT_NE(eight.text.find("6 N + 12 L d T"), std::string::npos) << eight.text;
}

// Master weights and moments resume in another layout.
TEST_F(TrainCuda, Bf16IsSavedAndResumed) {
  const std::string save = " --save " + folder_ / "run" + " --save-every 3";
  Output out = train("--backend cuda --steps 3 -N 2 --dp 2 --zero 1" + save);
  ASSERT_EQ(out.exit_code, 0) << out.text;
  const double before = steps().at(3)["loss"];
  out = train("--backend cuda --steps 5 -N 2 --tp 2 --resume" + save);
  ASSERT_EQ(out.exit_code, 0) << out.text;
  EXPECT_NE(out.text.find("goes on after step 3"), std::string::npos) << out.text;
  const auto after = steps();
  ASSERT_EQ(after.size(), 2u);
  EXPECT_NEAR(static_cast<double>(after.at(4)["loss"]) / before, 1, 0.1);
  EXPECT_FALSE(after.at(4).contains("mfu"));  // unknown peak of this GPU
  // Also on the CPU, where the master weights are the weights.
  out = train("--backend cpu --steps 6 -N 2 --pp 2 --resume" + save);
  ASSERT_EQ(out.exit_code, 0) << out.text;
  EXPECT_NE(out.text.find("goes on after step 5"), std::string::npos) << out.text;
  EXPECT_NEAR(static_cast<double>(steps().at(6)["loss"]) / before, 1, 0.2);
}

// --peak-tflops depends on the selected backend, --loss-scale on the type.
TEST_F(TrainCuda, RefusesWhatItWouldIgnore) {
  EXPECT_NE(train("--steps 1 --backend auto --peak-tflops 1", "off")
                .text.find("--peak-tflops 1 with --backend cpu"),
            std::string::npos);
  EXPECT_NE(train("--steps 1 --backend cuda --type fp16 --loss-scale 0")
                .text.find("--loss-scale 0 with --type fp16: its gradients need a scale"),
            std::string::npos);
  EXPECT_EQ(train("--steps 1 --backend cuda --type fp16 --peak-tflops 1").exit_code, 0);
}

// CPU modes that the GPU supports too, all at once.
TEST_F(TrainCuda, DeterministicOffloadedSeedStyle) {
  const std::string modes =
      "--backend cuda --steps 3 --deterministic --offload host --tp-style seed --tp 2 ";
  Output out = train(modes + "-N 2");
  ASSERT_EQ(out.exit_code, 0) << out.text;
  const auto want = steps();
  ASSERT_EQ(want.size(), 3u);
  EXPECT_GT(want.at(3)["offloaded_bytes"], 0);
  out = train(modes + "-N 4 --dp 2 --zero 1");
  ASSERT_EQ(out.exit_code, 0) << out.text;
  const auto got = steps();
  for (const auto& [step, line] : want) {
    EXPECT_EQ(line["loss"], got.at(step)["loss"]) << step;
    EXPECT_EQ(line["gradient_norm"], got.at(step)["gradient_norm"]) << step;
  }
}

TEST_F(TrainCuda, WithoutAGpuItSaysSo) {
  Output out = train("--backend cuda --steps 1", "off");
  EXPECT_NE(out.exit_code, 0);
  EXPECT_NE(out.text.find("--backend cuda: missing a CUDA device (WEFT_DEVICE=off); --backend cpu "
                          "trains without one"),
            std::string::npos)
      << out.text;
  for (const char* here : {"--backend auto", "--type bf16", "--type fp16"}) {
    out = train(std::string(here) + " --steps 1", "off");
    EXPECT_EQ(out.exit_code, 0) << out.text;
  }
}

TEST_F(TrainCuda, KernelsAreTimed) {
  const Output out =
      run(fmt::format("WEFT_DEVICE=fake {} bench kernels --rows 8 "
                      "--repeat 1 --peak-gbs 1000",
                      WEFT_WITH_FAKES));
  EXPECT_EQ(out.exit_code, 0) << out.text;
  for (const char* kernel : {"layer_norm_grad", "attention", "cross_entropy", "adamw"})
    EXPECT_NE(out.text.find(kernel), std::string::npos) << out.text;
}

// GPT-2's FLOPs, and no MFU for an unknown GPU.
TEST(Mfu, Formula) {
  const train::GptShape gpt2{
      .vocabulary = 50257, .positions = 1024, .width = 768, .heads = 12, .layers = 12};
  EXPECT_EQ(train::parameter_count(gpt2), 124439808u);
  EXPECT_EQ(train::flops_per_token(gpt2), 6.0 * 124439808 + 12.0 * 12 * 768 * 1024);
  EXPECT_EQ(train::gpu_peaks("GPU 0 (NVIDIA H200, 0000:1b:00.0)").tflops, 989);
  EXPECT_EQ(train::gpu_peaks("GPU 0 (NVIDIA H100 80GB HBM3, ...)").tflops, 989);
  EXPECT_EQ(train::gpu_peaks("GPU 0 (NVIDIA H100 PCIe, ...)").tflops, 756);
  EXPECT_EQ(train::gpu_peaks("NVIDIA A100-SXM4-80GB").gb_per_s, 2039);
  // Names that contain a known name, or lack the vendor.
  for (const char* other : {"GPU 0 (fake)", "GPU 0 (NVIDIA RTX A1000, ...)", "NVIDIA GH200 480GB",
                            "NVIDIA H200 NVL", "NVIDIA RTX A1000 Laptop GPU", "H200"})
    EXPECT_EQ(train::gpu_peaks(other).tflops, 0) << other;
}

}  // namespace
}  // namespace weft
