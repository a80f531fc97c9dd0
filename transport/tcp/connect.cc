// Opens and accepts the connections of the tcp transport. Either rank may connect; if both connect
// at the same time, the lower rank's connection is kept. Therefore the lower rank may send as soon
// as the kernel has connected, and the higher rank waits for the answer to its hello.
#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topo/base/log.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/transport.h"

namespace weft {
namespace {

constexpr std::uint64_t kStranger = std::uint64_t{1} << 32;  // event tag: a stranger's descriptor
// Maximum number of strangers beyond the number of peers.
constexpr std::size_t kMoreStrangers = 16;
// Up to this many connections are read without epoll.
constexpr std::size_t kDirect = 2;
constexpr unsigned kAskEvery = 32;  // turns between calls of epoll_wait

// Returns whether connecting failed because of a response of the peer or the network. Otherwise the
// attempt failed within this host: no route, no free port, another address family.
bool answered(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == ETIMEDOUT ||
         error == EHOSTUNREACH;
}

std::string cannot_watch(int error) {
  return fmt::format("epoll: {}{}", std::strerror(error),
                     error == ENOSPC ? "; raise fs.epoll.max_user_watches (sysctl)" : "");
}

std::string no_connection(const std::string& from, const std::string& to, int error) {
  return fmt::format("no connection from {} to {}: {}{}", from, to, std::strerror(error),
                     error == ECONNREFUSED
                         ? "; if that rank still runs, look at the firewalls: ranks "
                           "connect to any TCP port of each other"
                     : error == EAFNOSUPPORT
                         ? "; give both an address of one kind, or choose the rails with WEFT_RAILS"
                         : "");
}

}  // namespace

// Receives also connect, since only a connection shows that a peer has failed.
bool TcpTransport::connect(Peer& peer) {
  if (!peer.failure.ok()) return false;
  if (peer.state != State::kNone) return true;
  peer.fd = tcp::open_socket(device_, address_);
  if (!peer.fd) {  // a local failure
    const int error = errno;
    fail(peer, Code::kTransport,
         fmt::format("no socket for a connection to rank {}: {}{}", peer.rank, std::strerror(error),
                     error == EMFILE ? "; raise the limit with `ulimit -n` or LimitNOFILE=" : ""),
         true);
    return false;
  }
  tcp::tune(peer.fd);
  if (const int error = tcp::start(peer.fd, peer.address, peer.port)) {
    const bool theirs = answered(error);
    fail(peer, theirs ? Code::kPeerFailed : Code::kTransport,
         no_connection(address_, peer.address, error), !theirs);
    return false;
  }
  set_state(peer, State::kConnecting);
  return true;
}

void TcpTransport::connected(Peer& peer) {
  if (const int error = connect_error(peer.fd.get())) {
    // The peer may have connected to this rank, sent all its messages, and closed the connection.
    drop(peer);
    accept_all();
    strangers_.remove_if([this](Stranger& s) { return hear(s); });
    if (peer.state == State::kNone)
      fail(peer, Code::kPeerFailed, no_connection(address_, peer.address, error));
    return;
  }
  const tcp::Hello hello{.rank = static_cast<std::uint32_t>(rank_),
                         .nonce = peer.mine,
                         .proof = key_to(peer, tcp::Use::kHello)};
  peer.answer_have = 0;
  if (send(peer.fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
    fail(peer, Code::kPeerFailed, fmt::format("connection lost: {}", std::strerror(errno)));
    return;
  }
  set_state(peer, State::kGreeting);
  if (live(peer)) flush(peer);
}

// Handles the answer to this rank's hello.
void TcpTransport::greeted(Peer& peer) {
  const ssize_t n =
      recv(peer.fd.get(), reinterpret_cast<std::byte*>(&peer.answer) + peer.answer_have,
           sizeof peer.answer - peer.answer_have, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  peer.answer_have += n > 0 ? static_cast<std::size_t>(n) : 0;
  const bool whole = peer.answer_have == sizeof peer.answer;
  if (n > 0 && !whole) return;
  const auto says = [&](tcp::Answer::Kind kind, tcp::Use use) {
    return whole && peer.answer.kind == kind &&
           tcp::same_key(peer.answer.proof, key_from(peer, use));
  };
  if (says(tcp::Answer::Kind::kWelcome, tcp::Use::kWelcome)) {
    settle(peer);
  } else if (rank_ > peer.rank && says(tcp::Answer::Kind::kCrossed, tcp::Use::kCrossed)) {
    drop(peer);
    set_state(peer, State::kCrossed);
  } else {
    fail(peer, Code::kPeerFailed,
         n < 0    ? fmt::format("connection lost: {}", std::strerror(errno))
         : n == 0 ? "connection refused"
                  : "authentication failed: not the expected rank");
  }
}

void TcpTransport::accept_all() {
  for (;;) {
    int error = 0;
    Fd fd = accept_from(listener_.get(), error);
    if (!fd) return;
    if (strangers_.size() >= peers_.size() + kMoreStrangers) {
      hear(strangers_.front());  // it may be a peer's
      strangers_.pop_front();
    }
    epoll_event event{.events = EPOLLIN,
                      .data = {.u64 = kStranger | static_cast<unsigned>(fd.get())}};
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      log().error("weft: rank {}: device {}: a connection to this rank is closed: {}", rank_,
                  device_, cannot_watch(errno));
      continue;
    }
    strangers_.emplace_back().fd = std::move(fd);
  }
}

// Returns true if the stranger has become a peer or has disconnected.
bool TcpTransport::hear(Stranger& s) {
  const ssize_t n = recv(s.fd.get(), reinterpret_cast<std::byte*>(&s.hello) + s.have,
                         sizeof s.hello - s.have, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) return true;
  s.have += static_cast<std::size_t>(n);
  if (s.have < sizeof s.hello) return false;
  Peer* peer = s.hello.rank < peers_.size() ? &peers_[s.hello.rank] : nullptr;
  if (s.hello.magic != tcp::Hello::kMagic || !peer || peer->rank == rank_ || !peer->open ||
      !tcp::same_key(s.hello.proof, tcp::derive(key_, tcp::Use::kHello, {peer->rank, s.hello.nonce},
                                                {rank_, peer->mine}))) {
    log().debug("tcp: rank {}: device {}: rejected a connection that is not from a peer", rank_,
                device_);
    return true;
  }
  peer->theirs = s.hello.nonce;
  const bool mine = peer->state == State::kConnecting || peer->state == State::kGreeting;
  if (mine && rank_ < peer->rank) {
    (void)send_answer(*peer, s.fd, tcp::Answer::Kind::kCrossed);
  } else if (peer->state != State::kUp) {
    adopt(*peer, std::move(s.fd));
  }
  return true;
}

void TcpTransport::adopt(Peer& peer, Fd fd) {
  drop(peer);
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);  // drop its stranger's tag
  peer.fd = std::move(fd);
  tcp::tune(peer.fd);
  if (!send_answer(peer, peer.fd, tcp::Answer::Kind::kWelcome)) {
    fail(peer, Code::kPeerFailed, fmt::format("connection lost: {}", std::strerror(errno)));
    return;
  }
  settle(peer);
}

bool TcpTransport::send_answer(const Peer& peer, const Fd& fd, tcp::Answer::Kind kind) const {
  const tcp::Answer answer{.kind = kind, .proof = key_to(peer, static_cast<tcp::Use>(kind))};
  return send(fd.get(), &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer;
}

void TcpTransport::settle(Peer& peer) {
  if (datagrams_) {
    peer.short_ones.key_out = key_to(peer, tcp::Use::kDatagrams);
    peer.short_ones.key_in = key_from(peer, tcp::Use::kDatagrams);
  }
  set_state(peer, State::kUp);
  flush(peer);
}

// Closes the connection, but keeps the queued messages.
void TcpTransport::drop(Peer& peer) {
  if (peer.watched) epoll_ctl(events_.get(), EPOLL_CTL_DEL, peer.fd.get(), nullptr);
  peer.watched = 0;
  peer.unwatched = 0;
  peer.fd.reset();
  peer.full = false;
  slow(peer, false);
  set_state(peer, State::kNone);
  peer.front.clear();
  peer.left = 0;
  peer.into = nullptr;
  peer.to_receive = false;
  peer.to_unexpected = nullptr;
  peer.to_copy = false;
  peer.short_ones.forget_kept();
}

void TcpTransport::set_state(Peer& peer, State state) {
  const auto unsettled = [](State s) { return s != State::kNone && s != State::kUp; };
  unsettled_ += unsettled(state) - unsettled(peer.state);
  peer.state = state;
  std::erase(live_, &peer);
  if (live(peer)) live_.push_back(&peer);
  watch(peer);
  if (const bool direct = live_.size() <= kDirect; direct != direct_) {
    direct_ = direct;
    for (Peer* p : live_) watch(*p);
  }
}

// Selects the epoll events of the connection: connected, readable, and writable after the socket
// was full. Readable is omitted if every turn reads the connection anyway, since each packet costs
// more on a socket that epoll monitors.
void TcpTransport::watch(Peer& peer) {
  std::uint32_t events = peer.full ? EPOLLOUT : 0U;
  if (peer.state == State::kConnecting)
    events = EPOLLOUT;
  else if ((!direct_ || !live(peer)) && !peer.slowed)
    events |= EPOLLIN;
  if (!peer.fd || events == peer.watched) return;
  const int change = !peer.watched ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
  epoll_event event{.events = events, .data = {.u64 = static_cast<std::uint64_t>(peer.rank)}};
  // Callers iterate over peers, so progress() calls fail() later.
  if (epoll_ctl(events_.get(), change, peer.fd.get(), &event) != 0) peer.unwatched = deaf_ = errno;
  peer.watched = events;
}

// One turn of the progress engine. Reads a few connections without epoll.
void TcpTransport::progress() noexcept {
  if (std::exchange(deaf_, 0) != 0)
    for (Peer& peer : peers_)
      if (const int error = std::exchange(peer.unwatched, 0))
        fail(peer, Code::kTransport, cannot_watch(error), true);
  if (slowed_ > 0) [[unlikely]]
    for (Peer* peer : live_)
      if (!peer->matching.far_ahead(unexpected_most_)) slow(*peer, false);
  const bool look = ++turns_ % kAskEvery == 0;
  if ((hears_ || look) && hear_datagrams() == Found::kMessage && !look) return;
  if (look) tend_short_ones(Before::kTurns);
  if (direct_) {
    for (std::size_t i = live_.size(); i-- > 0;) {
      if (i >= live_.size()) continue;  // more than one was removed
      Peer& peer = *live_[i];
      read(peer);
      if (peer.fd && !peer.out.empty()) flush(peer);
    }
    if (unsettled_ == 0 && strangers_.empty() && !look) return;
  }
  epoll_event events[32];
  const int n = epoll_wait(events_.get(), events, 32, 0);
  for (int i = 0; i < n; ++i) {
    const std::uint64_t who = events[i].data.u64;
    if (who == UINT64_MAX) {
      accept_all();
    } else if (who & kStranger) {
      const auto at = std::find_if(strangers_.begin(), strangers_.end(), [who](const Stranger& s) {
        return s.fd.get() == static_cast<int>(who & (kStranger - 1));
      });
      if (at != strangers_.end() && hear(*at)) strangers_.erase(at);
    } else {
      Peer& peer = peers_[who];
      if (peer.state == State::kConnecting) {
        connected(peer);
        continue;
      }
      if (peer.fd && (events[i].events & ~std::uint32_t{EPOLLOUT})) read(peer);
      if (peer.fd && (events[i].events & EPOLLOUT)) flush(peer);
    }
  }
}

std::size_t TcpTransport::poll(std::span<Completion> out) noexcept {
  if (done_.size() < out.size() || out.empty()) progress();
  return done_.hand_out(out);
}

bool TcpTransport::arm(std::vector<int>& fds) noexcept {
  if (!done_.empty()) return false;
  tend_short_ones(Before::kSleep);
  fds.push_back(events_.get());
  if (datagrams_) fds.push_back(datagrams_.get());
  if (direct_)
    for (const Peer* peer : live_)
      if (!peer->slowed) fds.push_back(peer->fd.get());
  return true;
}

}  // namespace weft
