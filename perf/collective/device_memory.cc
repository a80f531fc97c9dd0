// Mirrors host buffers on a GPU, and times the GPU's own copies. Does not depend on payloads.
#include "perf/collective/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "coll/runtime/internals.h"
#include "transport/gpu/rank_gpu.h"

namespace weft {

int gpu_of_rank(const World& world) {
  Device* const d = device();
  if (!d) throw Error("--buffers cuda: missing capability: " + missing_device());
  return gpu_of_rank(world.topology(), world.rank(), *d);
}

DeviceMirror::DeviceMirror(int gpu, unsigned char* host, std::size_t bytes)
    : device_(*device()),
      gpu_(gpu),
      host_(host),
      memory_(static_cast<unsigned char*>(device_.alloc(gpu, bytes))),
      bytes_(bytes),
      stream_(device_.make_stream(gpu)),
      event_(device_.make_event(gpu)) {}

DeviceMirror::~DeviceMirror() {
  device_.free_event(event_);
  device_.free_stream(stream_);
  try {
    device_.free(memory_);
  } catch (const Error&) {  // already reported when the GPU failed
  }
}

unsigned char* DeviceMirror::at(const unsigned char* p) const {
  if (p < host_ || p > host_ + bytes_) return nullptr;
  return memory_ + (p - host_);
}

void DeviceMirror::copy(void* to, const void* from, std::size_t bytes) {
  device_.copy(to, from, bytes, gpu_, stream_);
  device_.record(event_, stream_);
  while (!device_.reached(event_)) std::this_thread::yield();
}
void DeviceMirror::upload() { copy(memory_, host_, bytes_); }
void DeviceMirror::download() { copy(host_, memory_, bytes_); }

double DeviceMirror::time_copy(std::size_t bytes) {
  constexpr int kTries = 10;
  // Copies between halves, since a driver may skip a copy onto itself.
  const std::size_t half = std::min(bytes, bytes_ / 2);
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    copy(memory_ + bytes_ / 2, memory_, half);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best * static_cast<double>(bytes) / static_cast<double>(half);
}

double device_bound_us(Collective c, int ranks, int n, double copy_us) {
  double copies = 1;  // (reads + writes) / 2 of a rank's whole buffer
  if (c == Collective::kReduceScatter) copies = 0.5 + 0.5 / n;
  if (c == Collective::kBarrier || c == Collective::kSendRecv) copies = 0;
  return copies * ranks * copy_us;
}

namespace {

// Returns an identity of each rank's GPU, equal for ranks that share a GPU. Collective.
std::vector<std::string> gpus_of_ranks(World& world) {
  return job_of(world).all_gather(world.topology().place(world.rank()).machine + " " +
                                  device()->identity(gpu_of_rank(world)));
}

}  // namespace

double measure_device_copy_us(World& world, std::uint64_t bytes) {
  const int gpu = gpu_of_rank(world);
  double mine = 0;
  // Runs on the first rank of each GPU, while other ranks wait on the host.
  const std::vector<std::string> users = gpus_of_ranks(world);
  const auto me = users.begin() + world.rank();
  const bool first = std::find(users.begin(), me, *me) == me;
  if (first) {
    const auto whole = static_cast<std::size_t>(std::max<std::uint64_t>(bytes, 1 << 20));
    DeviceMirror mirror(gpu, nullptr, 2 * whole);
    mine = mirror.time_copy(whole) * 1e6 * static_cast<double>(bytes) / static_cast<double>(whole);
  }
  double slowest = 0;
  for (const std::string& text :
       job_of(world).all_gather({reinterpret_cast<const char*>(&mine), sizeof mine})) {
    double theirs = 0;
    std::memcpy(&theirs, text.data(), sizeof theirs);
    slowest = std::max(slowest, theirs);
  }
  return slowest;
}

int ranks_per_gpu(World& world) {
  const std::vector<std::string> all = gpus_of_ranks(world);
  int most = 0;
  for (const std::string& one : all)
    most = std::max(most, static_cast<int>(std::count(all.begin(), all.end(), one)));
  return most;
}

}  // namespace weft
