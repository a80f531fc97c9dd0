// Reads the state of NVIDIA GPUs from NVML, if installed, and the errors (Xid) that the driver
// logged. Source: nvml.h of CUDA 12, "XID Errors" of NVIDIA's deployment guide.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "perf/validate/facts/sources.h"

namespace weft::fabric {
namespace {

using Device = void*;
using Long = unsigned long long;

template <typename... Args>
bool call(void* library, const char* name, Args... args) {
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  return function && function(args...) == 0;
}

struct Gpu {
  Readings state;
  std::uint64_t links = 0;
};

constexpr unsigned kMostLinks = 18;
constexpr int kVolatile = 0, kUncorrected = 1, kSmClock = 1, kCore = 0;
// Hardware slowdown, software and hardware thermal slowdown, power brake.
constexpr Long kSlowdowns = 0x08 | 0x20 | 0x40 | 0x80;

Gpu ask_gpu(void* nvml, Device device) {
  Gpu gpu;
  const auto put = [&](const char* name, std::uint64_t value) {
    gpu.state[name] = {ReadingState::kValue, value};
  };
  Long count = 0;
  if (call(nvml, "nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile, &count))
    put("ecc_uncorrected", count);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (call(nvml, "nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending,
           &failed)) {
    put("row_remap_pending", pending);
    put("row_remap_failed", failed);
  }
  Long reasons = 0, errors = 0;
  if (call(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons))
    put("slowdowns", reasons & kSlowdowns);
  unsigned clock = 0, most = 0, celsius = 0;
  if (call(nvml, "nvmlDeviceGetClockInfo", device, kSmClock, &clock)) put("mhz", clock);
  if (call(nvml, "nvmlDeviceGetMaxClockInfo", device, kSmClock, &most)) put("mhz.most", most);
  if (call(nvml, "nvmlDeviceGetTemperature", device, kCore, &celsius)) put("celsius", celsius);
  bool linked = false;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int active = 0;
    if (!call(nvml, "nvmlDeviceGetNvLinkState", device, link, &active)) continue;
    linked = true;
    gpu.links += active != 0;
    for (int kind = 0; active != 0 && kind < 4;
         ++kind) {  // replay, recovery, CRC of flits and data
      Long some = 0;
      if (call(nvml, "nvmlDeviceGetNvLinkErrorCounter", device, link, kind, &some)) errors += some;
    }
  }
  if (linked) put("nvlink_errors", errors);
  return gpu;
}

// Xids caused by hardware: memory, NVLink, a GPU that fell off the bus, its firmware. Programs
// cause the other Xids.
std::uint64_t hardware_xids(const Sources& sources) {
  static constexpr std::array kHardware = {48, 61, 62, 64, 74, 79, 92, 94, 95, 119, 120, 140};
  std::uint64_t found = 0;
  for (const KernelMessage& message : kernel_log(sources).value_or(std::vector<KernelMessage>{})) {
    int xid = 0;
    const auto at = message.text.find("NVRM: Xid (");
    if (at != std::string::npos &&
        std::sscanf(message.text.c_str() + at, "NVRM: Xid (%*[^)]): %d", &xid) == 1)
      found += std::ranges::find(kHardware, xid) != kHardware.end();
  }
  return found;
}

}  // namespace

void read_gpus(HostFacts& host, const Sources& sources) {
  if (host.gpus > 0 || !sources.nvml.empty())
    if (const std::uint64_t xids = hardware_xids(sources))
      host.gpu_state["xids"] = {ReadingState::kValue, xids};
  const std::string file =
      sources.nvml.empty() && sources.live && host.gpus > 0 ? "libnvidia-ml.so.1" : sources.nvml;
  void* const nvml = file.empty() ? nullptr : dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!nvml) return;
  unsigned count = 0;
  if (call(nvml, "nvmlInit_v2")) {
    std::vector<Gpu> gpus;
    if (call(nvml, "nvmlDeviceGetCount_v2", &count))
      for (unsigned i = 0; i < count; ++i) {
        Device device = nullptr;
        if (call(nvml, "nvmlDeviceGetHandleByIndex_v2", i, &device))
          gpus.push_back(ask_gpu(nvml, device));
      }
    std::uint64_t most = 0;
    for (const Gpu& gpu : gpus) most = std::max(most, gpu.links);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (most > 0) gpus[i].state["nvlinks_down"] = {ReadingState::kValue, most - gpus[i].links};
      for (const auto& [name, reading] : gpus[i].state)
        host.gpu_state["gpu" + std::to_string(i) + "." + name] = reading;
    }
    call(nvml, "nvmlShutdown");
  }
  dlclose(nvml);
}

}  // namespace weft::fabric
