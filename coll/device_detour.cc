#include "coll/device_detour.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "coll/arguments.h"
#include "coll/device_streams.h"
#include "topo/status.h"

namespace weft {
namespace {

bool on_gpu(const Residence& r) { return r.kind == MemoryKind::kDevice; }

std::size_t end_of(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i]) end = std::max(end, offsets[i] + counts[i]);
  return end;
}

}  // namespace

Detour::Detour(Device& device, int gpu, std::chrono::milliseconds deadline)
    : device_(device),
      gpu_(gpu),
      deadline_(deadline),
      stream_(own_stream(device, gpu, 0)),
      event_(device.make_event(gpu)) {}

Detour::~Detour() {
  if (under_way_)
    for (Pinned& room : rooms_) room.abandon();
  device_.free_event(event_);
}

std::byte* Detour::room(std::size_t bytes) { return rooms_.emplace_back(device_, bytes).get(); }

void Detour::down(std::byte* to, const void* from, std::size_t bytes) {
  under_way_ = true;
  if (bytes) device_.copy(to, from, bytes, gpu_, stream_);
}

void Detour::wait() {
  const auto until = std::chrono::steady_clock::now() + deadline_;
  device_.record(event_, stream_);
  while (!device_.reached(event_)) {
    if (std::chrono::steady_clock::now() > until)
      throw Error(
          fmt::format("{} did not copy within {} ms", device_.describe(gpu_), deadline_.count()));
    std::this_thread::yield();
  }
  under_way_ = false;
}

void Detour::land() {
  under_way_ = true;
  for (const Piece& p : up_)
    if (p.bytes) device_.copy(p.to, p.from, p.bytes, gpu_, stream_);
  wait();
}

std::unique_ptr<Detour> detour_of_blocks(Device& device, int gpu, Collective c, Call& call, Rank me,
                                         Rank root, std::size_t n,
                                         std::chrono::milliseconds deadline) {
  Call full = call;  // with all offsets
  const std::vector<std::size_t> blocks = own_blocks(full, n);
  const std::size_t element = size_of(call.type), zero = 0;
  const std::span<const std::size_t> own(&full.counts[static_cast<std::size_t>(me)], 1);
  const std::span<const std::size_t> first(&zero, 1);
  struct Side {
    std::span<const std::size_t> counts, offsets;
  } in{full.counts, full.offsets}, out{own, first};
  switch (c) {
    case Collective::kAllGather:
    case Collective::kGather:
      std::swap(in, out);
      if (c == Collective::kGather && me != root) out = {};
      break;
    case Collective::kScatter:
      if (me != root) in = {};
      break;
    case Collective::kAllToAll:
      out = {full.recv_counts, full.recv_offsets};
      break;
    default:
      break;
  }
  auto detour = std::make_unique<Detour>(device, gpu, deadline);
  // Also where a side has nothing: what is passed on is all in host memory.
  std::byte* const sent = detour->room(end_of(in.counts, in.offsets) * element);
  const auto* from = static_cast<const std::byte*>(call.in);
  for (std::size_t i = 0; i < in.counts.size(); ++i)
    if (in.counts[i])
      detour->down(sent + in.offsets[i] * element, from + in.offsets[i] * element,
                   in.counts[i] * element);
  detour->wait();
  std::byte* const received = detour->room(end_of(out.counts, out.offsets) * element);
  auto* to = static_cast<std::byte*>(call.out);
  for (std::size_t i = 0; i < out.counts.size(); ++i)
    if (out.counts[i])
      detour->later(to + out.offsets[i] * element, received + out.offsets[i] * element,
                    out.counts[i] * element);
  call.in = sent;
  call.out = received;
  return detour;
}

void move_bytes(void* to, const void* from, std::size_t bytes, std::chrono::milliseconds deadline) {
  if (bytes == 0) return;
  Device* const d = device();
  const Residence target = d ? d->residence(to) : Residence{};
  const Residence source = d ? d->residence(from) : Residence{};
  if (!on_gpu(target) && !on_gpu(source)) {
    std::memmove(to, from, bytes);
    return;
  }
  Detour detour(*d, on_gpu(target) ? target.gpu : source.gpu, deadline);
  std::byte* const host = detour.room(bytes);  // the buffers may overlap
  detour.down(host, from, bytes);
  detour.wait();
  detour.later(to, host, bytes);
  detour.land();
}

}  // namespace weft
