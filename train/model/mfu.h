// How much of a GPU's arithmetic a training step uses: "model FLOPs utilisation" (PaLM, arXiv
// 2204.02311, appendix B), which counts what the model needs, not what an implementation does.
//
//   FLOPs per token = 6 N + 12 L d T     N parameters, L layers, d width, T positions
//   MFU = tokens/s x FLOPs per token / (GPUs x peak)
//
// 12 L d T counts attention without its causal mask; with 6 L d T figures would be lower. The peak
// is that of dense bf16 matrix products.
#pragma once

#include <string>
#include <string_view>

#include "train/model/gpt_layers.h"

namespace weft::train {

inline double flops_per_token(const GptShape& s) {
  return 6.0 * static_cast<double>(parameter_count(s)) +
         12.0 * static_cast<double>(s.layers * s.width * s.positions);
}

// Of a GPU by its name; 0: not known, and then nothing is printed.
struct GpuPeaks {
  double tflops = 0;  // dense bf16
  double gb_per_s = 0;
};
// The name as the driver has it ("NVIDIA H200"), also inside of Device::describe(). Only a whole
// name counts: a GPU whose name merely contains another's (GH200, RTX A1000, H200 NVL) is not that
// one.
inline GpuPeaks gpu_peaks(std::string_view text) {
  struct Known {
    std::string_view name;
    GpuPeaks peaks;
  };
  // Data sheets of NVIDIA.
  constexpr Known kKnown[] = {{"H200", {989, 4800}},           {"H100 80GB HBM3", {989, 3350}},
                              {"H100 PCIe", {756, 2000}},      {"H100 NVL", {835, 3900}},
                              {"A100-SXM4-80GB", {312, 2039}}, {"A100-SXM4-40GB", {312, 1555}},
                              {"A100 80GB PCIe", {312, 1935}}, {"A100-PCIE-40GB", {312, 1555}}};
  constexpr std::string_view kMaker = "NVIDIA ";
  const std::size_t maker = text.find(kMaker);
  if (maker == std::string_view::npos) return {};
  text.remove_prefix(maker + kMaker.size());
  text = text.substr(0, text.find_first_of(",)"));
  for (const Known& k : kKnown)
    if (text == k.name) return k.peaks;
  return {};
}

}  // namespace weft::train
