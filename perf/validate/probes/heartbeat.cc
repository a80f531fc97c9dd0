// The heartbeat thread.
#include "perf/validate/probes/heartbeat.h"

#include <algorithm>
#include <chrono>

#include "perf/validate/probes/meter.h"
#include "topo/base/clock.h"
#include "topo/base/thread.h"

namespace weft::fabric {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(5);
constexpr double kStop_s = 0.01;  // shorter delays are timer jitter

}  // namespace

Heartbeat::Heartbeat() : thread_(start_thread("the heartbeat", [this] { beat(); })) {}

Heartbeat::~Heartbeat() {
  {
    const MutexLock lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

Stops Heartbeat::stops() const {
  const MutexLock lock(mutex_);
  return stops_;
}

void Heartbeat::beat() {
  const double start = now_s();
  MutexLock lock(mutex_);
  while (!end_) {
    const Starvation waits;
    const double before = now_s();
    ended_.wait_for(lock, kBeat);
    const double passed = now_s() - before;
    const double stopped =
        passed - waits.share() * passed - std::chrono::duration<double>(kBeat).count();
    stops_.watched_s = now_s() - start;
    if (stopped < kStop_s) continue;
    ++stops_.count;
    stops_.stopped_s += stopped;
    stops_.longest_s = std::max(stops_.longest_s, stopped);
  }
}

}  // namespace weft::fabric
