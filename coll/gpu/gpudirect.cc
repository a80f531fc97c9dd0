// Finds the ways between hosts that are open, and the memory that their messages go through.
#include "coll/gpu/gpudirect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "coll/footprint.h"
#include "topo/base/log.h"
#include "transport/gpu/gates.h"
#include "transport/offers.h"

namespace weft {
namespace {

// For shorter messages, staging all data in host memory is as fast or faster: a message of device
// memory is sent after an announcement and a grant (RTS and CTS), but one of host memory at once,
// by the host's best algorithm. The value was not measured.
constexpr std::uint64_t kLeastBytes = 64 << 10;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

// Returns the number of bytes from which on NICs send device memory that they can access
// (WEFT_GPUDIRECT). Throws Error if the variable is neither a number nor a known word.
std::uint64_t gpudirect_least_bytes() {
  const char* const set = std::getenv("WEFT_GPUDIRECT");
  const std::string_view text = set ? set : "auto";
  if (text == "auto") return kLeastBytes;
  if (text == "off") return kNever;
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error == std::errc() && end == text.data() + text.size()) return bytes;
  throw Error(
      fmt::format("WEFT_GPUDIRECT={} is not one of auto, off, or the bytes from which on "
                  "device memory is sent by the NICs",
                  text));
}

}  // namespace

GpuDirect::GpuDirect(DeviceLane& lane)
    : lane_(lane), gpus_(static_cast<std::size_t>(lane.device().count())) {}

GpuDirect::~GpuDirect() {
  gpus_.clear();
  unless_streams_wait(PooledMemory::trim);
}

std::uint64_t GpuDirect::ways(const DeviceOperation& op) {
  const std::size_t n = lane_.group().ranks.size();
  if (op.forced() || op.call.is_vector || op.collective() == Collective::kBarrier) return 0;
  if (!least_) least_ = gpudirect_least_bytes();
  const std::uint64_t bytes =
      op.call.count * most_blocks(op.collective(), n) * size_of(op.call.type);
  if (bytes < std::min(*least_, kLeastBytes)) return 0;
  const Footprint here = footprint(op.collective(), lane_.group().me, op.root());
  if ((here.in != Part::kNothing && op.mine.in.gpu < 0) ||
      (here.out != Part::kNothing && op.mine.out.gpu < 0))
    return 0;
  if (!no_layout_) lay_out();
  if (layout_.hosts.empty() && bytes < *least_) return 0;
  const int gpu = std::max(op.mine.in.gpu, op.mine.out.gpu);
  OfGpu& of = gpus_.at(static_cast<std::size_t>(gpu));
  if (!of.looked && bytes >= *least_) look(gpu, of);
  if (layout_.hosts.empty()) return 0;
  const std::uint64_t nics = of.memory && bytes >= *least_ ? std::uint64_t{kNics} : 0;
  if (neighbours().size() == 1) return nics;
  // The sum over hosts does not add in rank order.
  if (op.prepared->of.deterministic && reduces(op.collective())) return 0;
  if (op.collective() == Collective::kAllToAll &&
      (op.prepared->of.in_place || n > static_cast<std::size_t>(kDeviceOperands)))
    return 0;
  const bool staged = bytes >= kLeastBytes && !lane_.group().core->options.integrity &&
                      lane_.device().kernels_use_pinned(gpu);
  return nics | (staged ? std::uint64_t{kPinned} : 0);
}

void GpuDirect::look(int gpu, OfGpu& of) {
  of.looked = true;
  std::string why = why_not(gpu, {});
  try {
    if (why.empty()) {
      PooledMemory memory(lane_.device(), gpu, kComputeScratchMax,
                          &waiting_streams_of(lane_.group().core));
      why = why_not(gpu, memory);
      if (why.empty()) of.memory = std::move(memory);
    }
  } catch (const Error& e) {
    why = e.what();
  }
  const GroupState& g = lane_.group();
  if (!why.empty())
    log().info("weft: rank {}: memory of {} is staged through host memory between hosts: {}",
               g.ranks[static_cast<std::size_t>(g.me)], lane_.device().describe(gpu), why);
}

void GpuDirect::lay_out() {
  const CoreLock lock(lane_.group().core->mutex);
  no_layout_ = why_no_layout();
  if (!no_layout_->empty()) layout_ = {};
}

// Sets layout_ and returns an empty string, or returns why there is no layout.
std::string GpuDirect::why_no_layout() {
  const GroupState& g = lane_.group();
  const auto reads = [&](Rank r) {
    return g.core->links.shm_peer[static_cast<std::size_t>(g.ranks[static_cast<std::size_t>(r)])];
  };
  if (g.one_machine) return "all ranks are on one host";
  // A communicator may have its ranks in any order: sorted by rail, the ranks on one rail have the
  // same place on their hosts.
  std::vector<std::vector<Rank>> hosts = g.shape.hosts;
  for (std::vector<Rank>& host : hosts)
    std::ranges::stable_sort(host, {}, [&](Rank r) {
      return g.core->topology->rail(g.ranks[static_cast<std::size_t>(r)]);
    });
  const auto here = std::ranges::find_if(
      hosts, [&](const std::vector<Rank>& ranks) { return std::ranges::count(ranks, g.me) > 0; });
  if (std::ranges::any_of(*here, [&](Rank r) { return r != g.me && reads(r); })) {
    if (!std::ranges::all_of(*here, reads))
      return "not all ranks of this host can access each other's memory";
    for (const auto& host : hosts)
      if (host.size() != here->size())
        return fmt::format("hosts have different numbers of ranks, {} and {}", here->size(),
                           host.size());
    layout_ = {hosts, static_cast<std::size_t>(here - hosts.begin()),
               static_cast<std::size_t>(std::ranges::find(*here, g.me) - here->begin())};
  } else {
    layout_ = {{}, static_cast<std::size_t>(g.me), 0};
    for (Rank r = 0; r < static_cast<Rank>(g.ranks.size()); ++r) layout_.hosts.push_back({r});
  }
  if (std::max(layout_.hosts.size(), neighbours().size()) >
      static_cast<std::size_t>(kDeviceOperands))
    return fmt::format("more than {} hosts, or ranks of a host", kDeviceOperands);
  return {};
}

// Returns why NICs cannot use `memory`; empty: all NICs that this rank needs can access it. For
// empty `memory`, an empty result means only that nothing else prevents the use of NICs.
std::string GpuDirect::why_not(int gpu, const PooledMemory& memory) {
  if (!no_layout_->empty()) return *no_layout_;
  const GroupState& g = lane_.group();
  Core& core = *g.core;
  if (!lane_.device().takes_remote_writes(gpu)) return "the driver cannot flush NIC writes";
  const CoreLock lock(core.mutex);
  if (g.broken) return g.failure.to_string();
  const Rank me = g.ranks[static_cast<std::size_t>(g.me)];
  std::set<int> links;
  for (const auto& host : layout_.hosts) {
    const Rank peer = g.ranks[static_cast<std::size_t>(host[layout_.place])];
    if (peer != me) links.insert(core.links.link_of(me, peer));
  }
  for (const int link : links) {
    Transport& rail = *core.links.all[static_cast<std::size_t>(link)];
    DeviceMemory* const device = rail.device_memory();
    if (!rail.caps().cuda ||
        (memory && !(device && device->reaches_gpu(memory.get(), memory.size()))))
      return fmt::format("{}{} cannot access it", rail.caps().name, core.links.rail_name(link));
  }
  return {};
}

}  // namespace weft
