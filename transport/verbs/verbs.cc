// Set-up and tear-down of the verbs transport: device, slots, queue pairs, their exchange.
// The datapath is in verbs/datapath.cc.
#include "transport/verbs/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "topo/base/log.h"
#include "topo/base/yield.h"
#include "transport/loaded/loaded.h"
#include "transport/verbs/flow_label.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kDrainTimeout{1000};
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;
// Slots and staging of a rail are pinned: with many peers the slots get shorter, down to this.
constexpr std::size_t kMostArena = std::size_t{256} << 20;
constexpr std::size_t kLeastSlot = 1024;

// First byte of what ranks exchange: a greeting follows, or why there is none.
constexpr char kGreeting = 'g';
constexpr char kBroken = 'e';
constexpr char kCut = 'c';  // the fabric is at fault: a port that is down, a peer out of reach

// What must be the same on all ranks. The invitation of one peer follows.
struct Greeting {
  std::uint32_t qps = 0, slots = 0, slot_bytes = 0, windows = 0;
};

}  // namespace

bool verbs_available() { return static_cast<bool>(verbs_library()); }

bool verbs_everywhere(const Topology& topology) {
  for (Rank r = 0; r < topology.nranks(); ++r) {
    const auto& rails = topology.place(r).rails;
    if (rails.empty() || !std::ranges::all_of(rails, &Nic::rdma)) return false;
  }
  return true;
}

std::unique_ptr<Transport> make_verbs_transport(Job& job, const Topology& topology, const Nic& rail,
                                                bool replaceable) {
  return std::make_unique<VerbsTransport>(job, topology, rail, replaceable);
}

VerbsTransport::VerbsTransport(Job& job, const Topology& topology, const Nic& rail,
                               bool replaceable)
    : rank_(job.rank()),
      size_(job.size()),
      replaceable_(replaceable),
      peers_(static_cast<std::size_t>(job.size())) {
  const auto where = [&](Rank r) {
    return r < topology.nranks()
               ? fmt::format("rank {} on host {}", r, topology.host_name(topology.host(r)))
               : fmt::format("rank {}", r);
  };
  for (Rank r = 0; r < size_; ++r) {
    peers_[static_cast<std::size_t>(r)].rank = r;
    peers_[static_cast<std::size_t>(r)].where = where(r);
  }
  // A rank whose set-up fails still takes part in the exchanges, so that every rank learns of it
  // now and not by a timeout. The second one ends when every queue pair is ready to receive.
  std::vector<std::string> mine(peers_.size(), std::string(1, kGreeting));
  const auto check = [&](const std::vector<std::string>& all) {
    for (Rank r = 0; r < size_; ++r) {
      const std::string& text = all.at(static_cast<std::size_t>(r));
      if (!text.empty() && text[0] == kGreeting) continue;
      const std::string why =
          fmt::format("{}: {}", where(r), text.empty() ? "no answer" : text.substr(1));
      if (text.starts_with(kCut)) throw StatusError({Code::kTransport, why});
      throw Error(why);
    }
  };
  try {
    try {
      set_up(rail, size_);
      for (const Peer& peer : peers_)
        if (peer.rank != rank_) mine[static_cast<std::size_t>(peer.rank)] += greeting(peer);
    } catch (const StatusError& error) {
      mine.assign(mine.size(), kCut + error.status().message());
    } catch (const Error& error) {
      mine.assign(mine.size(), kBroken + std::string(error.what()));
    }
    const std::vector<std::string> all = job.all_to_all(mine);
    check(all);
    std::string ready(1, kGreeting);
    Rank r = 0;
    try {
      for (; r < size_; ++r)
        if (r != rank_) connect(r, std::string_view(all[static_cast<std::size_t>(r)]).substr(1));
    } catch (const StatusError& error) {
      ready = fmt::format("{}to {}: {}", kCut, where(r), error.status().message());
    } catch (const Error& error) {
      ready = fmt::format("{}to {}: {}", kBroken, where(r), error.what());
    }
    check(job.all_gather(ready));
  } catch (...) {
    release_all();
    throw;
  }
  log().debug("verbs: rank {} ready on {}, {} queue pairs, slots of {} bytes, {} bytes inline",
              rank_, where_, lanes_.size(), slot_bytes_, inline_bytes_);
}

void VerbsTransport::set_up(const Nic& rail, int nranks) {
  if (rail.name.empty()) throw Error("verbs: the rail has no device name; set WEFT_RAILS");
  settings_ = verbs_settings();
  device_ = std::make_unique<VerbsDevice>(rail.name, settings_);
  where_ = device_->where();
  const auto lanes = static_cast<std::size_t>(nranks - 1) * static_cast<std::size_t>(settings_.qps);
  const auto slots = static_cast<std::size_t>(settings_.slots);
  slot_bytes_ = settings_.slot_bytes ? settings_.slot_bytes : slot_bytes_for(device_->rate_gbps());
  while (2 * lanes * slots * slot_bytes_ > kMostArena && slot_bytes_ / 2 >= kLeastSlot)
    slot_bytes_ = slot_bytes_ / 2 / kLine * kLine;
  most_in_slot_ = slot_bytes_ > kVerbsFrontBytes ? slot_bytes_ - kVerbsFrontBytes : 0;

  const int recv_depth = VerbsRecvCredits::recv_depth(settings_.slots, settings_.windows);
  const std::size_t depth =
      std::max<std::size_t>(1, lanes) * static_cast<std::size_t>(recv_depth + settings_.send_depth);
  if (depth > static_cast<std::size_t>(device_->limits().max_cqe))
    throw Error(fmt::format(
        "verbs: {}: {} queue pairs need a completion queue of {} entries, and the device has {}; "
        "lower WEFT_VERBS_SEND_DEPTH, WEFT_VERBS_SLOTS or WEFT_VERBS_QPS",
        where_, lanes, depth, device_->limits().max_cqe));
  cq_ = std::make_unique<VerbsCq>(*device_, static_cast<int>(depth), true);
  cache_ = std::make_unique<Cache>(
      [this](void* data, std::size_t bytes, Cache::Use use) {
        const int access =
            use == Cache::Use::kWrite ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
        return VerbsMemory(*device_, data, bytes, access);
      },
      settings_.cache_entries, settings_.cache_bytes);
  if (lanes == 0) return;

  const std::size_t half = (lanes * slots * slot_bytes_ + kPage - 1) / kPage * kPage;
  arena_ = {static_cast<std::byte*>(std::aligned_alloc(kPage, 2 * half)), &std::free};
  if (!arena_)
    throw Error(fmt::format("verbs: {}: no memory for {} bytes of slots; lower WEFT_VERBS_SLOTS",
                            where_, 2 * half));
  std::memset(arena_.get(), 0, 2 * half);
  arena_memory_ = std::make_unique<VerbsMemory>(*device_, arena_.get(), 2 * half,
                                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  for (Peer& peer : peers_) {
    if (peer.rank == rank_) continue;
    peer.windows.resize(static_cast<std::size_t>(settings_.windows));
    for (int k = 0; k < settings_.qps; ++k) {
      Lane& lane = lanes_.emplace_back(settings_.slots);
      lane.peer = &peer;
      lane.index = static_cast<std::uint32_t>(lanes_.size() - 1);
      peer.lanes.push_back(&lane);
      lane.staging = arena_.get() + lane.index * slots * slot_bytes_;
      lane.ring = lane.staging + half;
      begin(lane);
    }
  }
}

// A queue pair, ready to be connected, at the beginning of its rings.
void VerbsTransport::begin(Lane& lane) {
  const Peer& peer = *lane.peer;
  VerbsQpOptions options;
  options.send_depth = settings_.send_depth;
  options.recv_depth = VerbsRecvCredits::recv_depth(settings_.slots, settings_.windows);
  options.inline_bytes = settings_.inline_bytes;
  if (settings_.qps > 1) {
    const auto k = std::find(peer.lanes.begin(), peer.lanes.end(), &lane) - peer.lanes.begin();
    options.flow_label = flow_label(rank_, peer.rank, static_cast<int>(k));
  }
  lane.qp = std::make_unique<VerbsQp>(*device_, *cq_, *cq_, options);
  inline_bytes_ = lane.qp->inline_bytes();
  ++lane.life;
  lane.send_credits = VerbsSendCredits(settings_.slots);
  lane.recv_credits = VerbsRecvCredits(settings_.slots);
  lane.posted = lane.done = lane.signalled = 0;
  lane.slot_request.assign(static_cast<std::size_t>(settings_.slots), 0);
  lane.chained = 0;
  lane.payload = false;
  lane.receives = options.recv_depth;
  give_receives_back(lane);
}

std::string VerbsTransport::greeting(const Peer& peer) const {
  const Greeting g{
      static_cast<std::uint32_t>(settings_.qps), static_cast<std::uint32_t>(settings_.slots),
      static_cast<std::uint32_t>(slot_bytes_), static_cast<std::uint32_t>(settings_.windows)};
  return std::string(reinterpret_cast<const char*>(&g), sizeof g) + invitation(peer);
}

void VerbsTransport::connect(Rank rank, std::string_view greeting) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  Greeting g;
  if (greeting.size() < sizeof g) throw Error(peer.where + ": its greeting is too short");
  std::memcpy(&g, greeting.data(), sizeof g);
  const auto same = [&](const char* variable, std::size_t mine, std::size_t theirs) {
    if (mine != theirs)
      throw Error(
          fmt::format("verbs: {} is {} on rank {} and {} on {}; it must be the same on all "
                      "ranks",
                      variable, mine, rank_, theirs, peer.where));
  };
  same("WEFT_VERBS_QPS", static_cast<std::size_t>(settings_.qps), g.qps);
  same("WEFT_VERBS_SLOTS", static_cast<std::size_t>(settings_.slots), g.slots);
  same("WEFT_VERBS_SLOT_BYTES", slot_bytes_, g.slot_bytes);
  same("WEFT_VERBS_WINDOWS", static_cast<std::size_t>(settings_.windows), g.windows);
  greeting.remove_prefix(sizeof g);
  if (!invites(peer, greeting))
    throw Error(peer.where + ": its greeting has another length; run the same build everywhere");
  accept(peer, greeting);
}

// What was handed to the device may be on its way still: it is acknowledged before the queue pairs
// go. A peer that does not answer in time is left alone.
VerbsTransport::~VerbsTransport() {
  const auto busy = [](const Lane& lane) { return lane.qp && lane.done < lane.signalled; };
  const auto deadline = std::chrono::steady_clock::now() + kDrainTimeout;
  while (std::any_of(lanes_.begin(), lanes_.end(), busy)) {
    if (reap() == 0) yield_core();
    if (std::chrono::steady_clock::now() < deadline) continue;
    log().debug("verbs: {}: not all of the last bytes were acknowledged within {} ms", where_,
                kDrainTimeout.count());
    break;
  }
  release_all();
}

// Queue pairs first: registrations must not go while a peer may still write through them.
void VerbsTransport::release_all() noexcept {
  for (Lane& lane : lanes_) lane.qp.reset();
  long_sends_.clear();
  for (Peer& peer : peers_) peer.windows.clear();
  cache_.reset();
  arena_memory_.reset();
}

}  // namespace weft
