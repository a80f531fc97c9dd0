// The bootstrap on rank 0: accepts every connection, but trusts only peers that have the secret.
//
// One thread and one poll() serve all connections, so a slow, unresponsive or malformed peer does
// not delay the others. Connections before authentication are bounded in number, size and time.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "topo/base/log.h"
#include "transport/control/hmac.h"
#include "transport/job/job_assembly.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

// An unauthenticated connection, or a rank that has not confirmed yet.
struct Newcomer {
  Channel channel;
  std::string nonce;
  Clock::time_point deadline;
  bool known = false;  // its hello was authentic
  wire::Hello hello;
};

class BootstrapServer {
 public:
  explicit BootstrapServer(const JobSpec& spec, Fd listener = {})
      : spec_(spec),
        deadline_(Clock::now() + spec.timeout),
        members_(static_cast<std::size_t>(spec.size)),
        instances_(members_.size()),
        newcomers_max_(64 + 2 * members_.size()),
        handshake_time_(std::min<std::chrono::milliseconds>(spec.timeout, 5s)) {
    // At the peak, confirmed ranks and newcomers are connected at the same time.
    need_files(static_cast<int>(members_.size() + newcomers_max_));
    listener_ = listener              ? std::move(listener)
                : spec.listen_fd >= 0 ? Fd::from([&] { return spec.listen_fd; })
                                      : listen_on(spec.address, spec.ports);
    // An inherited socket may lack these flags.
    (void)fcntl(listener_.get(), F_SETFL, fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
    (void)fcntl(listener_.get(), F_SETFD, FD_CLOEXEC);
    me_ = describe_rank(spec_.rank, host_label(), static_cast<std::uint64_t>(getpid()));
  }

  std::vector<Member> assemble() {
    while (arrived_ < members_.size() - 1) {
      const auto now = Clock::now();
      if (now >= deadline_) fail(missing());
      wait(now);
    }
    const std::string start =
        wire::encode_start(static_cast<std::uint32_t>(heartbeat_period(spec_.timeout).count()));
    for (Member& m : members_) m.channel.send(wire::Type::kStart, start);
    return std::move(members_);
  }

  std::vector<Member> assemble_survivors(std::span<const Rank> dead,
                                         const std::vector<std::string>& doors, std::string& mask) {
    tolerant_ = true;
    awaited_.assign(members_.size(), false);
    for (std::size_t r = static_cast<std::size_t>(spec_.rank) + 1; r < members_.size(); ++r)
      awaited_[r] = std::ranges::find(dead, static_cast<Rank>(r)) == dead.end();
    std::vector<std::vector<Endpoint>> at;
    for (const std::string& door : doors) at.push_back(door_endpoints(door));
    auto look = Clock::now();
    for (auto now = look; now < deadline_; now = Clock::now()) {
      if (now >= look) {
        look_at(at);
        look = Clock::now() + kLook;
      }
      bool all = true;
      for (std::size_t r = 0; r < members_.size(); ++r)
        all = all && (!awaited_[r] || members_[r].channel.open());
      if (all) break;
      wait(now, look);
    }
    mask.assign(members_.size(), '0');
    for (std::size_t r = 0; r < members_.size(); ++r)
      if (members_[r].channel.open() || static_cast<Rank>(r) == spec_.rank) mask[r] = '1';
    const std::string start =
        wire::encode_start(static_cast<std::uint32_t>(heartbeat_period(spec_.timeout).count()));
    for (Member& m : members_) {
      m.channel.send(wire::Type::kStart, start);
      m.channel.send(wire::Type::kShrunk, mask);
    }
    return std::move(members_);
  }

 private:
  static constexpr auto kLook = 200ms;    // between probes of the missing ranks' doors
  static constexpr auto kAnswer = 100ms;  // time limit of a probe

  enum class Keep { kYes, kNo };

  // Stops waiting for ranks whose door has no listener. Probes all doors at once, since in a
  // partitioned network none of them responds.
  void look_at(const std::vector<std::vector<Endpoint>>& doors) {
    std::vector<const Endpoint*> tried;
    std::vector<std::size_t> ranks;
    for (std::size_t r = 0; r < members_.size(); ++r) {
      if (!awaited_[r] || members_[r].channel.open()) continue;
      tried.push_back(doors[r].empty() ? nullptr : &doors[r].front());
      ranks.push_back(r);
    }
    const std::vector<int> found = knock(tried, kAnswer);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (found[i] == ECONNREFUSED) awaited_[ranks[i]] = false;
  }

  void wait(Clock::time_point now, Clock::time_point until = Clock::time_point::max()) {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    if (now < accept_again_) polled[0].fd = -1;
    auto wake = std::min(deadline_, until);
    for (const Newcomer& n : newcomers_) {
      const bool writing = n.channel.queued() > 0;
      polled.push_back(
          {n.channel.fd(), static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), 0});
      wake = std::min(wake, n.deadline);
    }
    std::vector<Rank> ranks;
    for (std::size_t r = 1; r < members_.size(); ++r) {
      if (!members_[r].channel.open()) continue;
      polled.push_back({members_[r].channel.fd(), POLLIN, 0});
      ranks.push_back(static_cast<Rank>(r));
    }
    if (now < accept_again_) wake = std::min(wake, accept_again_);
    if (::poll(polled.data(), polled.size(), poll_ms(wake, now)) < 0 && errno != EINTR) {
      throw Error(fmt::format("poll failed: {}", std::strerror(errno)));
    }
    const std::size_t newcomers = newcomers_.size();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (polled[1 + newcomers + i].revents != 0) serve_member(ranks[i]);
    }
    std::size_t i = 1;
    now = Clock::now();
    for (auto n = newcomers_.begin(); n != newcomers_.end();) {
      const bool ready = polled[i++].revents != 0;
      if ((ready && serve(*n) == Keep::kNo) || now >= n->deadline) {
        n = newcomers_.erase(n);
      } else {
        ++n;
      }
    }
    if (polled[0].revents != 0) accept_all(now);
  }

  void accept_all(Clock::time_point now) {
    for (int i = 0; i < 64; ++i) {  // then serve the accepted connections
      int error = 0;
      Fd fd = accept_from(listener_.get(), error);
      if (!fd && error == EAGAIN) return;
      no_room_ = 0;
      if (!fd && (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)) {
        // Out of files: drop the oldest unauthenticated connection.
        no_room_ = error;
        turn_away_oldest();
        accept_again_ = now + 20ms;
        return;
      }
      if (!fd) continue;  // that connection was already closed
      if (newcomers_.size() >= newcomers_max_) turn_away_oldest();
      Newcomer& n = newcomers_.emplace_back();
      n.channel = Channel(std::move(fd), wire::kMaxHandshakeBytes);
      n.nonce = random_bytes(wire::kNonceBytes);
      n.deadline = now + handshake_time_;
      n.channel.send(wire::Type::kChallenge,
                     wire::encode(wire::Challenge{wire::kVersion, n.nonce}));
    }
  }

  void turn_away_oldest() {
    const auto n = std::find_if(newcomers_.begin(), newcomers_.end(),
                                [](const Newcomer& newcomer) { return !newcomer.known; });
    if (n == newcomers_.end()) return;
    newcomers_.erase(n);
    ++turned_away_;
  }

  Keep serve(Newcomer& n) {
    n.channel.flush();
    wire::Frame frame;
    for (;;) {
      switch (n.channel.receive(frame)) {
        case Channel::Got::kNothing:
          return Keep::kYes;
        case Channel::Got::kEnd:
          // A rank tries all addresses at once and closes the connections that it no longer needs.
          if (!n.known && n.channel.heard()) ++turned_away_;
          return Keep::kNo;
        case Channel::Got::kFrame:
          break;
      }
      if (!n.known && frame.type == wire::Type::kHello) {
        auto hello = wire::decode_hello(frame.payload, spec_.secret, n.nonce);
        if (!hello) {
          ++turned_away_;
          wrong_secret_ = true;
          log().debug("rendezvous: rejected a connection with a wrong secret");
          return Keep::kNo;
        }
        n.hello = std::move(*hello);
        n.known = true;
        n.deadline = deadline_;
        examine(n);
      } else if (n.known && frame.type == wire::Type::kConfirm) {
        confirm(n);
        return Keep::kNo;
      } else {
        ++turned_away_;
        return Keep::kNo;
      }
    }
  }

  // A newcomer with the right secret is a process of this job. If its parameters do not match, the
  // job was started wrongly and cannot assemble: all ranks are notified immediately instead of
  // after the deadline.
  void examine(Newcomer& n) {
    const wire::Hello& h = n.hello;
    const std::string who = describe_rank(h.rank, h.host, h.pid);
    std::string problem;
    if (h.size != spec_.size) {
      problem = fmt::format(
          "{} was started as one of {} ranks, but rank 0 as one of {}: start all "
          "ranks with the same size",
          who, h.size, spec_.size);
    } else if (h.rank < 0 || h.rank >= spec_.size) {
      problem = fmt::format("{} does not exist in a job of {} ranks", who, spec_.size);
    } else {
      problem = claimed(h);
    }
    if (!problem.empty()) {
      n.channel.send(wire::Type::kReply,
                     wire::encode(wire::Reply{false, 0, problem}, spec_.secret, n.nonce, h));
      fail(Status(Code::kMismatch, problem, h.rank));
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    const auto remaining = static_cast<std::uint32_t>(std::max<std::int64_t>(left.count(), 1));
    n.channel.send(wire::Type::kReply,
                   wire::encode(wire::Reply{true, remaining, me_}, spec_.secret, n.nonce, h));
  }

  // Returns why this rank number is already in use; empty if it is free.
  std::string claimed(const wire::Hello& h) const {
    const auto r = static_cast<std::size_t>(h.rank);
    const std::string& instance = instances_[r];
    if (h.rank != spec_.rank && (instance.empty() || instance == h.instance)) return {};
    return fmt::format("two processes claim rank {}: {} and {}; every rank needs a unique number",
                       h.rank, h.rank == spec_.rank ? me_ : members_[r].who,
                       describe_rank(h.rank, h.host, h.pid));
  }

  void confirm(Newcomer& n) {
    const auto r = static_cast<std::size_t>(n.hello.rank);
    if (const std::string problem = claimed(n.hello); !problem.empty()) {
      const Status failure(Code::kMismatch, problem, n.hello.rank);
      n.channel.send(wire::Type::kFailure, wire::encode_failure(failure));
      fail(failure);
    }
    if (!instances_[r].empty()) return;  // a second connection of the same process
    instances_[r] = n.hello.instance;
    members_[r] = {std::move(n.channel), describe_rank(n.hello.rank, n.hello.host, n.hello.pid)};
    members_[r].channel.set_max_payload(wire::kMaxFrameBytes);
    ++arrived_;
  }

  // A member sends nothing before kStart, so any received data or event means that its connection
  // ended.
  void serve_member(Rank r) {
    Member& m = members_[static_cast<std::size_t>(r)];
    wire::Frame frame;
    const Channel::Got got = m.channel.receive(frame);
    if (got == Channel::Got::kNothing) return;
    const std::string why = got == Channel::Got::kEnd ? m.channel.why() : "unexpected frame";
    m.channel.close();
    if (tolerant_) {
      awaited_[static_cast<std::size_t>(r)] = false;
      return;
    }
    fail(Status(Code::kPeerFailed,
                fmt::format("{} died while the job was assembling: {}", m.who, why), r));
  }

  Status missing() const {
    std::vector<Rank> ranks;
    for (std::size_t r = 1; r < members_.size(); ++r) {
      if (!members_[r].channel.open()) ranks.push_back(static_cast<Rank>(r));
    }
    std::string text =
        fmt::format("{} did not arrive within {} ms", name_ranks(ranks), spec_.timeout.count());
    if (turned_away_ > 0) {
      text +=
          fmt::format(" ({} connection{} rejected: not from this job, or with another WEFT_SECRET)",
                      turned_away_, turned_away_ == 1 ? "" : "s");
    }
    if (no_room_ != 0) {
      text += fmt::format(
          " (rank 0 cannot accept connections: {}; close other files, or raise the limit with "
          "`ulimit -n` or LimitNOFILE=)",
          std::strerror(no_room_));
    }
    const Code code = wrong_secret_   ? Code::kMismatch
                      : no_room_ != 0 ? Code::kInvalidArgument
                                      : Code::kTimeout;
    return Status(code, text, ranks.size() == 1 ? ranks[0] : kNoRank);
  }

  // Notifies all authenticated connections, waits up to 1 s until that is sent, and throws.
  [[noreturn]] void fail(const Status& failure) {
    const std::string payload = wire::encode_failure(failure);
    std::vector<Channel*> told;
    for (Member& m : members_) told.push_back(&m.channel);
    for (Newcomer& n : newcomers_) {
      if (n.known) told.push_back(&n.channel);
    }
    for (Channel* c : told) c->send(wire::Type::kFailure, payload);
    const auto enough = Clock::now() + 1s;
    for (;;) {
      std::vector<pollfd> polled;
      for (Channel* c : told) {
        c->flush();
        if (c->queued() > 0) polled.push_back({c->fd(), POLLOUT, 0});
      }
      const auto now = Clock::now();
      if (polled.empty() || now >= enough) break;
      (void)::poll(polled.data(), polled.size(), poll_ms(enough, now));
    }
    throw_assembly_failure(failure);
  }

  const JobSpec& spec_;
  const Clock::time_point deadline_;
  std::vector<Member> members_;
  std::vector<std::string> instances_;  // instances by rank; empty if not connected yet
  std::size_t arrived_ = 0;
  const std::size_t newcomers_max_;
  const std::chrono::milliseconds handshake_time_;
  Fd listener_;
  std::string me_;
  std::list<Newcomer> newcomers_;  // oldest first
  Clock::time_point accept_again_{};
  int no_room_ = 0;  // errno of the last connection that could not be accepted
  int turned_away_ = 0;
  bool wrong_secret_ = false;  // a rejected connection had a wrong secret
  // After rank 0's end: the job continues without the ranks that do not connect.
  bool tolerant_ = false;
  std::vector<bool> awaited_;
};

}  // namespace

std::vector<Member> assemble_survivors(const JobSpec& spec, Fd door, std::span<const Rank> dead,
                                       const std::vector<std::string>& doors, std::string& mask) {
  return BootstrapServer(spec, std::move(door)).assemble_survivors(dead, doors, mask);
}

std::vector<Member> assemble_root(const JobSpec& spec) {
  std::optional<BootstrapServer> server;
  try {
    server.emplace(spec);
  } catch (const Error& e) {  // a limit of this host, or its port
    throw WrongSetUp(e.what());
  }
  return server->assemble();
}

}  // namespace weft
