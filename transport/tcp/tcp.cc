// Sets up and tears down the tcp transport: the listener, the exchange of contacts. tcp/connect.cc
// handles connections.
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "topo/base/log.h"
#include "topo/base/yield.h"
#include "transport/job/exchange.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/transport.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kLingering{1000};
constexpr std::size_t kInbox = std::size_t{64} << 10;

// Returns false if ranks share cores: the extra system call per turn then costs more than datagrams
// save.
bool takes_datagrams(const Topology& topology, Rank me) {
  if (const char* set = std::getenv("WEFT_TCP_DATAGRAMS")) return std::string_view(set) != "0";
  long here = 0;
  for (Rank r = 0; r < topology.nranks(); ++r) here += topology.same_kernel(r, me);
  return here <= sysconf(_SC_NPROCESSORS_ONLN);
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(Job& job, const Topology& topology, const Nic& rail) {
  return std::make_unique<TcpTransport>(job, topology, rail);
}

TcpTransport::TcpTransport(Job& job, const Topology& topology, const Nic& rail)
    : rank_(job.rank()),
      device_(rail.netdev.empty() ? rail.name : rail.netdev),
      address_(rail.address),
      key_(job.key("tcp")),
      peers_(static_cast<std::size_t>(job.size())),
      inbox_(kInbox) {
  tcp::Nonce nonce{};
  const std::vector<std::string> all = exchange(job, topology, [&] {
    nonce = tcp::new_nonce();
    listen(rail);
    if (takes_datagrams(topology, rank_)) open_datagrams();
    return contact(nonce);
  });
  for (Rank r = 0; r < job.size(); ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    peer.rank = r;
    peer.where = rank_on_host(topology, r);
    peer.mine = nonce;
    peer.matching.count_in(unexpected_);
    if (!parse_contact(all.at(static_cast<std::size_t>(r)), peer))
      throw Error(peer.where + ": tcp: no address");
  }
  log().debug("tcp: rank {} ready on device {}, {}", rank_, device_, address_);
}

void TcpTransport::listen(const Nic& rail) {
  if (rail.address.empty())
    throw Error(
        fmt::format("tcp: device {} has no IP address; give it one, or choose the rails "
                    "with WEFT_RAILS",
                    device_));
  events_ = Fd::from([] { return epoll_create1(EPOLL_CLOEXEC); });
  listener_ = tcp::open_socket(device_, address_);
  // Connections may wait in the listen queue until this rank polls, so the queue has the maximum
  // length.
  if (!listener_ || ::listen(listener_.get(), SOMAXCONN) != 0)
    throw Error(fmt::format("tcp: device {}: cannot listen on {}: {}", device_, address_,
                            std::strerror(errno)));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = UINT64_MAX}};
  if (!events_ || epoll_ctl(events_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0)
    throw Error(fmt::format("tcp: device {}: epoll: {}", device_, std::strerror(errno)));
}

// Without a UDP socket or a MAC, the transport works without datagrams.
void TcpTransport::open_datagrams() {
  try {
    mac_.emplace();
    datagrams_ = tcp::open_socket(device_, address_, true);
  } catch (const Error& error) {
    log().info("weft: tcp: device {}: no datagrams: {}", device_, error.what());
  }
}

tcp::Key TcpTransport::key_to(const Peer& peer, tcp::Use use) const {
  return tcp::derive(key_, use, {rank_, peer.mine}, {peer.rank, peer.theirs});
}

tcp::Key TcpTransport::key_from(const Peer& peer, tcp::Use use) const {
  return tcp::derive(key_, use, {peer.rank, peer.theirs}, {rank_, peer.mine});
}

std::string TcpTransport::contact(const tcp::Nonce& nonce) const {
  std::string text =
      fmt::format("{} {} {:02x}", address_, port_of(listener_.get()), fmt::join(nonce, ""));
  return datagrams_ ? fmt::format("{} {}", text, port_of(datagrams_.get())) : text;
}

bool TcpTransport::parse_contact(std::string_view text, Peer& peer) const {
  tcp::Contact contact;
  if (!tcp::parse_contact(text, contact)) return false;
  peer.address = contact.address;
  peer.port = contact.port;
  peer.theirs = contact.nonce;
  peer.short_ones.to = {};
  peer.short_ones.out.reset();
  if (datagrams_ && contact.datagrams != 0)
    parse_address(contact.address, contact.datagrams, peer.short_ones.to);
  return true;
}

// Waits until the peers' kernels have acknowledged all data, since the kernel discards unsent data
// when a socket with unread input is closed.
TcpTransport::~TcpTransport() {
  before_pause();
  const auto deadline = std::chrono::steady_clock::now() + kLingering;
  const auto under_way = [this](Peer& peer) {
    return live(peer) && (!peer.out.empty() || tcp::unacknowledged(peer.fd) > 0);
  };
  const auto any = [&] { return std::any_of(peers_.begin(), peers_.end(), under_way); };
  while (any() && std::chrono::steady_clock::now() < deadline) {
    progress();
    yield_core();
  }
}

Caps TcpTransport::caps() const {
  Caps caps;
  caps.name = "tcp";
  return caps;
}

void TcpTransport::fail(Peer& peer, Code code, const std::string& why, bool here) {
  if (!peer.failure.ok()) return drop(peer);
  peer.open = false;
  const Peer& culprit = here ? peers_[static_cast<std::size_t>(rank_)] : peer;
  peer.failure =
      Status(code, fmt::format("{}: device {}: {}", culprit.where, device_, why), culprit.rank);
  log().debug("tcp: rank {}: {}", rank_, peer.failure.to_string());
  drop(peer);
  end_all(peer, code);
}

// Data in this host's socket buffers is not included.
std::optional<std::uint64_t> TcpTransport::moved_bytes() const noexcept {
  std::uint64_t bytes = moved_;
  for (const Peer* peer : live_) {
    bytes -= tcp::unacknowledged(peer->fd);
    for (const Kept& k : peer->short_ones.kept) bytes -= k.bytes;
  }
  return bytes;
}

// Ends all transfers with the peer. Keeps complete unexpected messages.
void TcpTransport::end_all(Peer& peer, Code code) {
  for (std::size_t i = 0; i < peer.out.size(); ++i)
    if (peer.out[i].tell) complete(peer.out[i].id, code);
  for (const Transfer& send : peer.sends) complete(send.id, code);
  peer.matching.end_receives([&](std::uint64_t id) { complete(id, code); });
  peer.out.clear();
  peer.sends.clear();
  peer.ready.clear();
  peer.matching.drop_if([](const Unexpected& u) { return u.kept.is != Early::Is::kHere; });
}

// ---- disconnect and reconnect --------------------------------------------------------------

void TcpTransport::disconnect(Rank rank) noexcept {
  Peer* peer = find(rank);
  if (!peer) return;
  peer->open = false;
  peer->failure = Status(Code::kAborted,
                         fmt::format("{}: device {}: disconnected", peer->where, device_), rank);
  drop(*peer);
  peer->out.clear();
  peer->sends.clear();
  peer->ready.clear();
  peer->matching.end_receives([](std::uint64_t) {});
  peer->matching.drop_if([](const Unexpected&) { return true; });
}

std::string TcpTransport::reopen(Rank rank) noexcept {
  Peer* peer = find(rank);
  if (!peer || peer->open) return {};
  try {
    peer->mine = tcp::new_nonce();
  } catch (const Error&) {
    return {};
  }
  peer->short_ones.heard = {};
  peer->short_ones.came = {};
  peer->short_ones.sequence = 0;
  peer->open = true;  // the peer may receive both contacts first and connect
  return contact(peer->mine);
}

bool TcpTransport::connect(Rank rank, std::string_view theirs) noexcept {
  Peer* peer = find(rank);
  if (!peer || !peer->open || !parse_contact(theirs, *peer)) return false;
  peer->failure = {};
  peer->note = {};
  peer->short_ones.sent = 0;
  peer->short_ones.asks = 0;
  peer->short_ones.quiet = 0;
  return true;
}

}  // namespace weft
