// Peak rates of GPUs, from data sheets.
#pragma once

#include <string_view>

namespace weft::train {

// Peak rates of a GPU; 0: unknown, so no utilization is printed.
struct GpuPeaks {
  double tflops = 0;  // dense bf16
  double gb_per_s = 0;
};
// Looks up the peaks for the driver's GPU name ("NVIDIA H200") in `text`, such as
// Device::describe(). Matches whole names only: a name that contains another one (GH200, RTX A1000,
// H200 NVL) is a different GPU.
inline GpuPeaks gpu_peaks(std::string_view text) {
  struct Known {
    std::string_view name;
    GpuPeaks peaks;
  };
  // From NVIDIA's data sheets.
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
