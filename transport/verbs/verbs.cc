// Set-up and tear-down of the verbs transport: device, slots, and the agreement of ranks.
// Connections are made later, by verbs/connections/.
#include "transport/verbs/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "topo/base/log.h"
#include "topo/base/yield.h"
#include "transport/job/exchange.h"
#include "transport/loaded/loaded.h"
#include "transport/verbs/greeting.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kDrainTimeout{1000};

}  // namespace

std::string why_no_verbs() { return verbs_library().why_not(); }

std::unique_ptr<Transport> make_verbs_transport(Job& job, const Topology& topology, const Nic& rail,
                                                bool replaceable) {
  return std::make_unique<VerbsTransport>(job, topology, rail, replaceable);
}

VerbsTransport::VerbsTransport(Job& job, const Topology& topology, const Nic& rail,
                               bool replaceable)
    : rank_(job.rank()), replaceable_(replaceable), peers_(static_cast<std::size_t>(job.size())) {
  const auto where = [&](Rank r) { return rank_on_host(topology, r); };
  for (Rank r = 0; r < job.size(); ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    peer.rank = r;
    peer.where = where(r);
    peer.matching.count_in(unexpected_);
  }
  std::unique_ptr<Mailbox> mail = job.open_mailbox();
  // A rank whose set-up fails still takes part, so that every rank learns of it now and not by a
  // timeout. Only rank 0 reads the greetings.
  std::string greeting;
  try {
    try {
      if (!mail) throw Error("verbs: this job carries no letters between ranks");
      greeting = set_up(rail, topology.nrails()).encode();
      VerbsQueuePairs& pairs = *this;
      connections_ = std::make_unique<VerbsConnections>(pairs, std::move(mail), rank_, where_,
                                                        slots_->planned());
      if (job.size() > 1) connections_->begin();
    } catch (const StatusError& error) {
      greeting = kVerbsCut + error.status().message();
    } catch (const Error& error) {
      greeting = kVerbsBroken + std::string(error.what());
    }
    const std::vector<std::string> all = job.gather(greeting);
    std::vector<std::string> verdicts;
    if (rank_ == 0) verdicts.assign(peers_.size(), verbs_verdict(all, where));
    const std::size_t slot_bytes = verbs_slot_bytes(job.scatter(verdicts));
    slots_->agree(slot_bytes);
    most_in_slot_ = std::max(slot_bytes, kVerbsFrontBytes) - kVerbsFrontBytes;
  } catch (...) {
    release_all();
    throw;
  }
  log().debug("verbs: rank {} ready on {}, for {} connections with slots of {} bytes", rank_,
              where_, slots_->planned(), slots_->slot_bytes());
}

VerbsGreeting VerbsTransport::set_up(const Nic& rail, int nrails) {
  if (rail.name.empty()) throw Error("verbs: the rail has no device name; set WEFT_RAILS");
  settings_ = verbs_settings();
  if (settings_.timeout == 0) settings_.timeout = timeout_for(replaceable_);
  device_ = std::make_unique<VerbsDevice>(rail.name, settings_);
  where_ = device_->where();
  // Rates without a code in libibverbs (XDR) come from the device's files.
  const double rate = std::max(device_->rate_gbps(), rail.rate_gbps);
  const int nranks = static_cast<int>(peers_.size());
  slots_ = std::make_unique<VerbsSlots>(*device_, verbs_shape(settings_, rate, nranks, nrails));
  buffers_ = std::make_unique<VerbsBuffers>(*device_);
  inline_bytes_ = settings_.inline_bytes;
  VerbsGreeting greeting;
  greeting.qps = static_cast<std::uint32_t>(settings_.qps);
  greeting.slots = static_cast<std::uint32_t>(settings_.slots);
  greeting.slot_bytes = static_cast<std::uint32_t>(slots_->slot_bytes());
  greeting.windows = static_cast<std::uint32_t>(settings_.windows);
  greeting.pkey = device_->port().pkey;
  greeting.ethernet = device_->port().ethernet;
  greeting.chosen = settings_.slot_bytes != 0;
  return greeting;
}

// Posted messages may still be in flight: waits for their acknowledgement before the queue pairs
// are destroyed, at most kDrainTimeout.
VerbsTransport::~VerbsTransport() {
  const auto busy = [](const Lane& lane) {
    return lane.peer->broken ? lane.send_credits.sent() > lane.send_credits.taken()
                             : lane.qp && lane.requests.done() < lane.requests.payload();
  };
  const auto deadline = std::chrono::steady_clock::now() + kDrainTimeout;
  while (std::any_of(lanes_.all.begin(), lanes_.all.end(), busy)) {
    for (Lane& lane : lanes_.all)
      if (lane.peer->link == Link::kOpen)
        check_posted(lane, lane.requests.mark(lane.requests.payload()));
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
  for (Lane& lane : lanes_.all) lane.qp.reset();
  long_sends_.clear();
  for (Peer& peer : peers_) peer.windows.clear();
  buffers_.reset();
  slots_.reset();
}

Caps VerbsTransport::caps() const {
  Caps caps;
  caps.name = "verbs";
  caps.cuda = true;
  caps.inline_bytes = static_cast<std::size_t>(
      std::max<std::ptrdiff_t>(0, inline_bytes_ - static_cast<std::ptrdiff_t>(kVerbsFrontBytes)));
  return caps;
}

}  // namespace weft
