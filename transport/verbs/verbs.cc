// Set-up and tear-down of the verbs transport: device, slots, and the agreement of ranks.
// Connections are made later, by verbs/connections/.
#include "transport/verbs/verbs.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "topo/base/log.h"
#include "topo/base/yield.h"
#include "transport/job/exchange.h"
#include "transport/loaded/loaded.h"
#include "transport/verbs/greeting.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kDrainTimeout{1000};
constexpr std::size_t kSmallPage = 4096, kHugePage = 2u << 20;

}  // namespace

std::string why_no_verbs() { return verbs_library().why_not(); }

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
  const auto where = [&](Rank r) { return rank_on_host(topology, r); };
  for (Rank r = 0; r < size_; ++r) {
    peers_[static_cast<std::size_t>(r)].rank = r;
    peers_[static_cast<std::size_t>(r)].where = where(r);
    peers_[static_cast<std::size_t>(r)].matching.count_in(unexpected_);
  }
  std::unique_ptr<Mailbox> mail = job.open_mailbox();
  // A rank whose set-up fails still takes part, so that every rank learns of it now and not by a
  // timeout. Only rank 0 reads the greetings.
  std::string greeting;
  try {
    try {
      if (!mail) throw Error("verbs: this job carries no letters between ranks");
      greeting = set_up(rail, size_, topology.nrails()).encode();
      VerbsQueuePairs& pairs = *this;
      connections_ =
          std::make_unique<VerbsConnections>(pairs, std::move(mail), rank_, where_, shape_.places);
      if (size_ > 1) connections_->begin();
    } catch (const StatusError& error) {
      greeting = kVerbsCut + error.status().message();
    } catch (const Error& error) {
      greeting = kVerbsBroken + std::string(error.what());
    }
    const std::vector<std::string> all = job.gather(greeting);
    std::vector<std::string> verdicts;
    if (rank_ == 0) verdicts.assign(peers_.size(), verbs_verdict(all, where));
    slot_bytes_ = verbs_slot_bytes(job.scatter(verdicts));
    most_in_slot_ = slot_bytes_ > kVerbsFrontBytes ? slot_bytes_ - kVerbsFrontBytes : 0;
  } catch (...) {
    release_all();
    throw;
  }
  log().debug("verbs: rank {} ready on {}, for {} connections with slots of {} bytes", rank_,
              where_, shape_.places, slot_bytes_);
}

VerbsGreeting VerbsTransport::set_up(const Nic& rail, int nranks, int nrails) {
  if (rail.name.empty()) throw Error("verbs: the rail has no device name; set WEFT_RAILS");
  settings_ = verbs_settings();
  if (settings_.timeout == 0) settings_.timeout = timeout_for(replaceable_);
  device_ = std::make_unique<VerbsDevice>(rail.name, settings_);
  where_ = device_->where();
  // Rates without a code in libibverbs (XDR) come from the device's files.
  const double rate = std::max(device_->rate_gbps(), rail.rate_gbps);
  shape_ = verbs_shape(settings_, rate, nranks, nrails);
  const int recv_depth = VerbsRecvCredits::recv_depth(settings_.slots, settings_.windows);
  const int each = settings_.qps * (recv_depth + settings_.send_depth);
  const int most = device_->limits().max_cqe;
  if (each > most)
    throw Error(fmt::format(
        "verbs: {}: a connection needs a completion queue of {} entries, and the device has {}; "
        "lower WEFT_VERBS_SEND_DEPTH, WEFT_VERBS_SLOTS or WEFT_VERBS_QPS",
        where_, each, most));
  shape_.places = std::min(shape_.places, most / each);
  cache_ = std::make_unique<Cache>(
      [this](void* data, std::size_t bytes, Cache::Use use) {
        const int access =
            use == Cache::Use::kWrite ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
        return VerbsMemory(*device_, data, bytes, access);
      },
      settings_.cache_entries, settings_.cache_bytes, device_->is_software());
  inline_bytes_ = settings_.inline_bytes;
  VerbsGreeting greeting;
  greeting.qps = static_cast<std::uint32_t>(settings_.qps);
  greeting.slots = static_cast<std::uint32_t>(settings_.slots);
  greeting.slot_bytes = static_cast<std::uint32_t>(shape_.slot_bytes);
  greeting.windows = static_cast<std::uint32_t>(settings_.windows);
  greeting.pkey = device_->port().pkey;
  greeting.ethernet = device_->port().ethernet;
  greeting.chosen = settings_.slot_bytes != 0;
  slot_bytes_ = shape_.slot_bytes;
  return greeting;
}

// Makes places with slots of the size that this rank has offered, or all ranks have agreed on. The
// first completion queue has room for all planned places, a later one for its own.
void VerbsTransport::add_places(int places, bool own_queue) {
  if (own_queue) {
    const int recv_depth = VerbsRecvCredits::recv_depth(settings_.slots, settings_.windows);
    const int each = settings_.qps * (recv_depth + settings_.send_depth);
    queues_.emplace_back(*device_, (queues_.empty() ? shape_.places : places) * each, true);
  }
  Slots more;
  more.places = places;
  more.cq = own_queue ? &queues_.back() : &queues_.front();
  const std::size_t bytes = 2 * verbs_half(settings_, places, slot_bytes_);
  const bool huge = settings_.huge_pages && bytes >= kHugePage;
  const std::size_t page = huge ? kHugePage : kSmallPage;
  const std::size_t whole = (bytes + page - 1) / page * page;
  more.arena = {static_cast<std::byte*>(std::aligned_alloc(page, whole)), &std::free};
  if (!more.arena)
    throw Error(fmt::format("verbs: {}: no memory for {} bytes of slots; lower WEFT_VERBS_SLOTS",
                            where_, bytes));
  if (huge) madvise(more.arena.get(), whole, MADV_HUGEPAGE);  // a hint, before the first touch
  std::memset(more.arena.get(), 0, whole);
  more.memory = std::make_unique<VerbsMemory>(*device_, more.arena.get(), bytes,
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  slots_.push_back(std::move(more));
}

// Returns the slots that contain the peer's place, and sets `place` to its index in them.
VerbsTransport::Slots& VerbsTransport::slots_of(const Peer& peer, int& place) {
  place = peer.place;
  auto at = slots_.begin();
  for (; place >= at->places; ++at) place -= at->places;
  return *at;
}

// Makes a queue pair, ready to be connected, with empty rings at its place.
void VerbsTransport::begin(Lane& lane) {
  const Peer& peer = *lane.peer;
  VerbsQpOptions options;
  options.send_depth = settings_.send_depth;
  options.recv_depth = VerbsRecvCredits::recv_depth(settings_.slots, settings_.windows);
  options.inline_bytes = settings_.inline_bytes;
  const auto k = std::find(peer.lanes.begin(), peer.lanes.end(), &lane) - peer.lanes.begin();
  if (settings_.qps > 1) {
    options.flow_label = flow_label(rank_, peer.rank, static_cast<int>(k));
  }
  int place = 0;
  Slots& slots = slots_of(peer, place);
  lane.qp = std::make_unique<VerbsQp>(*device_, *slots.cq, *slots.cq, options);
  inline_bytes_ = std::min(inline_bytes_, lane.qp->inline_bytes());
  const auto number = static_cast<std::size_t>(place * settings_.qps + static_cast<int>(k));
  lane.key = slots.memory->lkey();
  lane.staging =
      slots.arena.get() + number * static_cast<std::size_t>(settings_.slots) * slot_bytes_;
  lane.ring = lane.staging + verbs_half(settings_, slots.places, slot_bytes_);
  lane.requests.begin(lane.qp->poster());
  if (!peer.broken) {
    lane.send_credits = VerbsSendCredits(settings_.slots);
    lane.recv_credits = VerbsRecvCredits(settings_.slots);
  }
  lane.slot_request.assign(static_cast<std::size_t>(settings_.slots), 0);
  lane.receives = options.recv_depth;
  give_receives_back(lane);
}

// Posted messages may still be in flight: waits for their acknowledgement before the queue pairs
// are destroyed, at most kDrainTimeout.
VerbsTransport::~VerbsTransport() {
  const auto busy = [](const Lane& lane) {
    return lane.peer->broken ? lane.send_credits.sent() > lane.send_credits.taken()
                             : lane.qp && lane.requests.done() < lane.requests.payload();
  };
  const auto deadline = std::chrono::steady_clock::now() + kDrainTimeout;
  while (std::any_of(lanes_.begin(), lanes_.end(), busy)) {
    for (Lane& lane : lanes_)
      if (lane.peer->link == Link::kOpen) mark(lane, lane.requests.payload());
    if (std::ranges::any_of(peers_, &Peer::broken)) connections_->read_letters();
    if (reap() == 0) yield_core();
    if (std::chrono::steady_clock::now() < deadline) continue;
    log().debug("verbs: {}: not all of the last bytes were acknowledged within {} ms", where_,
                kDrainTimeout.count());
    break;
  }
  release_all();
}

// Queue pairs first: registrations must outlive writes of the peers.
void VerbsTransport::release_all() noexcept {
  for (Lane& lane : lanes_) lane.qp.reset();
  long_sends_.clear();
  for (Peer& peer : peers_) peer.windows.clear();
  cache_.reset();
  slots_.clear();
  queues_.clear();
}

}  // namespace weft
