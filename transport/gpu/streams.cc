// Makes weft's own streams when first asked for. Knows nothing of their work.
#include "transport/gpu/streams.h"

#include <map>
#include <tuple>

#include "topo/base/mutex.h"

namespace weft {

Device::Stream own_stream(Device& device, int gpu, int which) {
  struct Own {
    Mutex mutex;
    std::map<std::tuple<Device*, int, int>, Device::Stream> streams WEFT_GUARDED_BY(mutex);
  };
  static Own* const own = new Own;  // never destroyed, as the device
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

}  // namespace weft
