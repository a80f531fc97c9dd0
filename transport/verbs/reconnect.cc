// Ends a connection of the verbs transport and makes a new one: see Transport::sever().
//
// The peers pass each other the bytes themselves, beside the letters of connections.cc. A
// connection is a peer's queue pairs. Once they are destroyed, no device reads or writes memory
// for them, and this rank's device drops the peer's packets that are still under way. The slots,
// their registration, the completion queue and the other peers' connections stay.
#include <algorithm>
#include <cstring>

#include "topo/base/log.h"
#include "transport/verbs/transport.h"

namespace weft {
std::string VerbsTransport::invitation(const Peer& peer) {
  const std::string port = device_->port().encode();
  VerbsInvitation mine;
  mine.rings = reinterpret_cast<std::uint64_t>(peer.lanes.front()->ring);
  int place = 0;
  mine.key = slots_of(peer, place).memory->rkey();
  mine.port_bytes = static_cast<std::uint32_t>(port.size());
  mine.number = peer.mine;
  std::string text(reinterpret_cast<const char*>(&mine), sizeof mine);
  text += port;
  for (const Lane* lane : peer.lanes) {
    const VerbsQpName name = lane->qp->name();
    text.append(reinterpret_cast<const char*>(&name), sizeof name);
  }
  return text;
}

bool VerbsTransport::invites(std::string_view theirs) const {
  VerbsInvitation their;
  if (theirs.size() < sizeof their) return false;
  std::memcpy(&their, theirs.data(), sizeof their);
  return their.number != 0 &&
         theirs.size() == sizeof their + their.port_bytes +
                              static_cast<std::size_t>(settings_.qps) * sizeof(VerbsQpName);
}

std::uint32_t VerbsTransport::number_of(std::string_view theirs) {
  VerbsInvitation their;
  std::memcpy(&their, theirs.data(), sizeof their);
  return their.number;
}

void VerbsTransport::accept(Peer& peer, std::string_view theirs) {
  VerbsInvitation their;
  std::memcpy(&their, theirs.data(), sizeof their);
  const std::string_view names = theirs.substr(sizeof their + their.port_bytes);
  const VerbsPath path =
      verbs_path(device_->port(), VerbsPort::decode(theirs.substr(sizeof their, their.port_bytes)),
                 device_->where());
  for (std::size_t k = 0; k < peer.lanes.size(); ++k) {
    Lane& lane = *peer.lanes[k];
    VerbsQpName name;
    std::memcpy(&name, names.data() + k * sizeof name, sizeof name);
    lane.remote_ring = their.rings + k * static_cast<std::size_t>(settings_.slots) * slot_bytes_;
    lane.remote_key = their.key;
    lane.qp->connect(path, name);
  }
  peer.theirs = their.number;
  log().debug("verbs: rank {} on {}: {} by {}, options of ECE {:#x}", rank_, where_, peer.where,
              to_string(path), peer.lanes.front()->qp->ece_options());
}

void VerbsTransport::sever(Rank rank) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer) return;
  end_all(*peer, Code::kAborted, false);
  peer->matching.drop_if([](const Unexpected&) { return true; });
  if (peer->failure.ok())
    peer->failure = Status(Code::kPeerFailed, peer->where + ": " + where_ + ": opened anew", rank);
}

std::string VerbsTransport::reopen(Rank rank) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer) return {};
  try {
    device_->refresh();
    hear_device();  // what it reported before concerns the connection that has ended
    end_all(*peer, Code::kAborted, false);  // an attempt before this one
    drain_queues();
    if (!take_place(*peer)) {
      make_room();
      return {};  // again later
    }
    if (peer->lanes.empty()) make_lanes(*peer);
    peer->mine = ++attempts_;
    for (Lane* lane : peer->lanes) begin(*lane);
    link(*peer, Link::kInvited);
    return invitation(*peer);
  } catch (const std::exception& e) {
    log().debug("verbs: rank {}: {} cannot be opened yet: {}", rank_, peer->where, e.what());
    end_all(*peer, Code::kAborted, false);
    return {};
  }
}

bool VerbsTransport::meet(Rank rank, std::string_view theirs) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer || peer->link != Link::kInvited || !invites(theirs)) return false;
  try {
    accept(*peer, theirs);
  } catch (const std::exception& e) {
    log().debug("verbs: rank {}: {} cannot be met: {}", rank_, peer->where, e.what());
    end_all(*peer, Code::kAborted, false);
    return false;
  }
  peer->failure = {};
  peer->note = {};
  opened(*peer);
  return true;
}

}  // namespace weft
