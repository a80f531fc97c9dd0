// Whether device memory is sent by the cards, and through which memory.
#include "coll/device_gpudirect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "coll/device_by_cards.h"
#include "coll/device_regions.h"
#include "coll/device_shape.h"
#include "topo/log.h"

namespace weft {
namespace {

// Below, staging is as good or better: a message of device memory is announced and granted before
// it goes, where one of host memory just goes. Not measured.
constexpr std::uint64_t kLeastBytes = 64 << 10;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

std::uint64_t least_bytes() {
  const char* const set = std::getenv("WEFT_GPUDIRECT");
  const std::string_view text = set ? set : "auto";
  if (text == "auto") return kLeastBytes;
  if (text == "off") return kNever;
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error == std::errc() && end == text.data() + text.size()) return bytes;
  throw Error(fmt::format("WEFT_GPUDIRECT={} is not one of auto, off, or the bytes from which on "
                          "device memory is sent by the cards",
                          text));
}

}  // namespace

GpuDirect::GpuDirect(DeviceLane& lane)
    : lane_(lane), gpus_(static_cast<std::size_t>(lane.device().count())) {}

GpuDirect::~GpuDirect() {
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    give_back_region(static_cast<int>(gpu), std::move(gpus_[gpu].memory));
}

bool GpuDirect::wants(const DeviceOperation& op) {
  const std::size_t n = lane_.group().ranks.size();
  if (op.forced || op.call.uneven || op.collective == Collective::kBarrier) return false;
  if (!least_) least_ = least_bytes();
  if (op.call.count * most_blocks(op, n) * size_of(op.call.type) < *least_) return false;
  const DeviceShape here = device_shape(op.collective, lane_.group().me, op.root, n);
  if ((here.in && op.mine.in.gpu < 0) || (here.out && op.mine.out.gpu < 0)) return false;
  const int gpu = std::max(op.mine.in.gpu, op.mine.out.gpu);
  OfGpu& of = gpus_.at(static_cast<std::size_t>(gpu));
  if (!of.looked) look(gpu, of);
  return of.memory != nullptr;
}

void GpuDirect::look(int gpu, OfGpu& of) {
  of.looked = true;
  std::string why = why_not(gpu, nullptr);
  try {
    if (why.empty()) {
      auto memory = take_region(lane_.device(), gpu, kByCardsBytes);
      why = why_not(gpu, memory.get());
      if (why.empty())
        of.memory = std::move(memory);
      else
        give_back_region(gpu, std::move(memory));
    }
  } catch (const Error& e) {
    why = e.what();
  }
  const GroupState& g = lane_.group();
  if (!why.empty())
    log().info("weft: rank {}: memory of {} goes through host memory between hosts: {}",
               g.ranks[static_cast<std::size_t>(g.me)], lane_.device().describe(gpu), why);
}

// Empty: all cards that this rank needs reach the memory; without one, nothing else speaks against it.
std::string GpuDirect::why_not(int gpu, const DeviceRegion* memory) {
  const GroupState& g = lane_.group();
  Core& core = *g.core;
  if (g.ranks.size() > static_cast<std::size_t>(kDeviceOperands))
    return fmt::format("more than {} ranks", kDeviceOperands);
  if (!lane_.device().takes_remote_writes(gpu))
    return "the driver cannot say when a card's writes are there to be read";
  const std::lock_guard lock(core.mutex);
  if (core.broken) return core.failure.to_string();
  const Rank me = g.ranks[static_cast<std::size_t>(g.me)];
  std::set<int> links;
  for (const Rank peer : g.ranks) {
    if (peer == me) continue;
    const int link = core.link_of(me, peer);
    if (link == core.shm_link) return fmt::format("rank {} is on this host", peer);
    links.insert(link);
  }
  for (const int link : links) {
    Transport& rail = *core.links[static_cast<std::size_t>(link)];
    if (!rail.caps().cuda || (memory && !rail.reaches_device(memory->data(), memory->size())))
      return fmt::format("{}{} does not reach it", rail.caps().name, core.rail_name(link));
  }
  return {};
}

Status GpuDirect::run(const DeviceOperation& op, std::span<const DeviceRecord> records) {
  const int gpu = std::max(op.mine.in.gpu, op.mine.out.gpu);
  return run_by_cards(lane_, op, records,
                      gpus_.at(static_cast<std::size_t>(gpu)).memory->data());
}

}  // namespace weft
