// Creates weft's own streams on first use. This file is independent of their work.
#include "transport/gpu/streams.h"

#include <algorithm>
#include <map>
#include <memory>
#include <thread>
#include <tuple>

#include "topo/base/mutex.h"

namespace weft {

Device::Stream own_stream(Device& device, int gpu, int which) {
  struct Own {
    Mutex mutex;
    std::map<std::tuple<Device*, int, int>, Device::Stream> streams WEFT_GUARDED_BY(mutex);
  };
  static Own* const own = new Own;  // never destroyed, like the device
  const MutexLock lock(own->mutex);
  const auto [at, missing] = own->streams.try_emplace({&device, gpu, which});
  if (missing) try {
      at->second = device.make_stream(gpu);
    } catch (...) {
      own->streams.erase(at);
      throw;
    }
  return at->second;
}

void copy_now(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Device& gpus = *device();
  const int gpu = std::max(gpus.residence(to).gpu, gpus.residence(from).gpu);
  const Device::Stream stream = own_stream(gpus, gpu, 1);
  const auto free_event = [&](void* event) { gpus.free_event(event); };
  const std::unique_ptr<void, decltype(free_event)> event(gpus.make_event(gpu), free_event);
  gpus.copy(to, from, bytes, gpu, stream);
  gpus.record(event.get(), stream);
  while (!gpus.reached(event.get())) std::this_thread::yield();
}

}  // namespace weft
