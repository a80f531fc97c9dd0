// Detects the device of this process. This file is independent of the work that runs on it.
#include "transport/gpu/device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "topo/base/log.h"
#include "topo/base/mutex.h"
#include "topo/base/status.h"

namespace weft {
namespace {

Mutex look_mutex;
std::string why_none WEFT_GUARDED_BY(look_mutex);
constinit std::atomic<DeviceFactory> test_devices{nullptr};

}  // namespace

namespace detail {

std::atomic<Device*> active_device{nullptr};
std::atomic<bool> device_looked_for{false};

Device* look_for_device() {
  const MutexLock lock(look_mutex);
  if (device_looked_for.load()) return active_device.load();
  const char* text = std::getenv("WEFT_DEVICE");
  const std::string_view wanted = text ? text : "auto";
  Device* found = nullptr;
  if (wanted == "auto" || wanted == "cuda") {
#ifdef WEFT_HAVE_CUDA
    found = cuda_device(why_none);
#else
    why_none = "this build has no CUDA: configure with WEFT_CUDA=ON where nvcc is";
#endif
    if (!found && wanted == "cuda")
      throw Error(fmt::format("WEFT_DEVICE=cuda, but there is no CUDA device: {}", why_none));
  } else if (wanted == "off") {
    why_none = "WEFT_DEVICE=off";
  } else {
    if (const DeviceFactory make = test_devices.load()) found = make(wanted);
    if (!found) throw Error(fmt::format("WEFT_DEVICE={} is not one of auto, cuda, off", wanted));
  }
  active_device.store(found);
  device_looked_for.store(true, std::memory_order_release);
  if (found) log().debug("weft: {} GPUs, the first is {}", found->count(), found->describe(0));
  return found;
}

}  // namespace detail

void set_device_factory(DeviceFactory factory) noexcept { test_devices.store(factory); }

std::string missing_device() {
  (void)device();
  const MutexLock lock(look_mutex);
  return fmt::format("a CUDA device ({})", why_none);
}

const char* name(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::kHost:
      return "host memory";
    case MemoryKind::kPinned:
      return "pinned host memory";
    case MemoryKind::kManaged:
      return "managed memory";
    case MemoryKind::kDevice:
      return "device memory";
  }
  return "?";
}

}  // namespace weft
