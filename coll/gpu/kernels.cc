// Runs the reduction kernel on the processor, for the fake device.
#include "coll/gpu/kernels.h"

#include <set>

#include "coll/gpu/arithmetic.h"
#include "topo/base/log.h"
#include "topo/base/mutex.h"
#include "topo/base/status.h"
#include "transport/gpu/streams.h"

namespace weft {
namespace {

// Few threads, but more than one: even small messages take every path of the kernel.
constexpr std::size_t kThreads = 3;

struct RunAll {
  const DeviceReduce& reduce;
  template <class E, class Fn>
  void operator()() const {
    const device_arithmetic::Split s = device_arithmetic::split(reduce);
    for (std::size_t t = 0; t < kThreads; ++t)
      device_arithmetic::body<E, Fn>(reduce, s, t, kThreads);
  }
};

void run_here(const void* args, void* (*local)(const void*)) {
  DeviceReduce r = *static_cast<const DeviceReduce*>(args);
  for (int k = 0; k < r.nsrcs; ++k) r.srcs[k] = local(r.srcs[k]);
  for (int d = 0; d < r.ndsts; ++d) r.dsts[d] = local(r.dsts[d]);
  device_arithmetic::with_kernel(r.type, r.op, RunAll{r});
}

}  // namespace

DeviceWork device_work(const DeviceReduce& reduce) {
  DeviceWork work;
#ifdef WEFT_HAVE_CUDA
  work.launch = detail::launch_device_reduce;
  work.load = detail::load_device_reduce;
#endif
  work.run = run_here;
  work.args = &reduce;
  work.bytes = sizeof reduce;
  work.title = "weft_reduce";
  return work;
}

void prepare_gpu(Device& device, int gpu) {
  static Mutex mutex;
  // Never destroyed.
  static auto* const loaded WEFT_PT_GUARDED_BY(mutex) = new std::set<int>;
  const MutexLock lock(mutex);  // others wait until the kernels are loaded
  if (loaded->contains(gpu)) return;
  loaded->insert(gpu);
  for (int which = 0; which < kOwnStreams; ++which) own_stream(device, gpu, which);
  const DeviceReduce any{};
  try {
    device.load(device_work(any), gpu);
  } catch (const Error& e) {  // copies need no kernel; a launch reports it again
    log().info("weft: {}", e.what());
  }
}

}  // namespace weft
