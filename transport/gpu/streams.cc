// Makes weft's own streams when first asked for. Knows nothing of their work.
#include "transport/gpu/streams.h"

#include <map>
#include <mutex>
#include <tuple>

namespace weft {

Device::Stream own_stream(Device& device, int gpu, int which) {
  struct Own {
    std::mutex mutex;
    std::map<std::tuple<Device*, int, int>, Device::Stream> streams;
  };
  static Own* const own = new Own;  // never destroyed, as the device
  const std::lock_guard lock(own->mutex);
  const auto [at, missing] = own->streams.try_emplace({&device, gpu, which});
  if (missing) try {
      at->second = device.make_stream(gpu);
    } catch (...) {
      own->streams.erase(at);
      throw;
    }
  return at->second;
}

}  // namespace weft
