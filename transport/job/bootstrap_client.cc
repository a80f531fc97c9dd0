// The bootstrap on ranks other than 0: tries all endpoints of rank 0 concurrently and repeatedly,
// until the process at one endpoint proves that it has the secret.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "transport/control/address.h"
#include "transport/control/hmac.h"
#include "transport/job/job_assembly.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

// The last step of an attempt; the error message describes the attempt with the latest step.
enum class Step : int { kStarted, kConnecting, kSilent, kGreeted, kAccepted };

// Initial wait for a peer that does not respond.
constexpr std::chrono::milliseconds kSilence{3000};

struct Attempt {
  Endpoint to;
  Channel channel;
  Step step = Step::kStarted;
  bool hello_sent = false;
  Clock::time_point first_at{}, begun_at{}, connected_at{}, hello_at{};
  std::string nonce;         // rank 0's
  Clock::time_point next{};  // when to connect again
  std::chrono::milliseconds backoff{10}, silence = kSilence;
};

class BootstrapClient {
 public:
  // once: an endpoint that refuses or disconnects is not retried.
  explicit BootstrapClient(const JobSpec& spec, bool once = false)
      : spec_(spec), once_(once), deadline_(Clock::now() + spec.timeout) {
    hello_.rank = spec.rank;
    hello_.size = spec.size;
    hello_.nonce = random_bytes(wire::kNonceBytes);
    hello_.instance = random_bytes(wire::kInstanceBytes);
    hello_.pid = static_cast<std::uint64_t>(getpid());
    hello_.host = host_label();
  }

  RootLink assemble() {
    RootLink link = find();
    wait_for_start(link);
    return link;
  }

 private:
  RootLink find() {
    for (;;) {
      auto now = Clock::now();
      if (now >= deadline_) {
        if (nearest_ >= Step::kGreeted) throw WrongSetUp(why_not());
        throw Error(why_not());
      }
      look_up(now);
      now = Clock::now();  // a resolver may take long
      start_attempts(now);
      if (Attempt* a = wait(now)) {
        RootLink link{std::move(a->channel), root_, heartbeat_period(spec_.timeout)};
        attempts_.clear();
        link.channel.set_max_payload(wire::kMaxFrameBytes);
        link.channel.send(wire::Type::kConfirm, {});
        return link;
      }
    }
  }

  // Names are resolved repeatedly, since a name may be unknown until rank 0's host is up, and may
  // change. A resolver may block for seconds, during which no endpoint is served. Therefore numeric
  // addresses are tried first, and lookups wait while an endpoint may be about to send.
  void look_up(Clock::time_point now) {
    if (now < look_up_next_) return;
    const auto talks = [now](const auto& item) {
      const Attempt& a = item.second;
      const bool mute = a.nonce.empty() && a.silence > kSilence;  // unresponsive before
      return a.channel.open() && a.step >= Step::kSilent && !mute && now < a.connected_at + kTalk;
    };
    if (std::ranges::any_of(attempts_, talks)) {
      look_up_next_ = now + kPatience;
      return;
    }
    const bool numbers = std::exchange(numbers_first_, false);
    for (Endpoint& e : resolve(only(numbers), spec_.ports, lookup_problem_)) {
      auto [at, inserted] = attempts_.try_emplace(e.text);
      if (inserted) at->second.to = std::move(e);
    }
    look_up_next_ = Clock::now() + (numbers && attempts_.empty()   ? 0ms
                                    : numbers || attempts_.empty() ? 250ms
                                                                   : 5000ms);
  }

  // Selects the numeric addresses, or the names.
  std::string only(bool numbers) const {
    std::string some;
    std::stringstream all(spec_.address);
    for (std::string one; std::getline(all, one, ',');) {
      Address ignored;
      if (parse_address(one, 0, ignored) == numbers) some += one + ',';
    }
    return some;
  }

  void start_attempts(Clock::time_point now) {
    for (auto& [text, a] : attempts_) {
      if (a.channel.open() || now < a.next) continue;
      int error = 0;
      Fd fd = start_connect(a.to, error);
      if (!fd) {
        give_up(a, std::strerror(error), now);
        continue;
      }
      a.channel = Channel(std::move(fd), wire::kMaxHandshakeBytes);
      a.step = Step::kConnecting;
      a.begun_at = now;
      if (a.first_at == Clock::time_point{}) a.first_at = now;
      a.hello_sent = false;
      a.nonce.clear();
    }
  }

  // Serves all attempts once; returns the attempt that rank 0 accepted.
  Attempt* wait(Clock::time_point now) {
    std::vector<pollfd> polled;
    std::vector<Attempt*> order;
    auto wake = std::min(deadline_, look_up_next_);
    for (auto& [text, a] : attempts_) {
      if (!a.channel.open()) {
        wake = std::min(wake, a.next);
        continue;
      }
      const bool out = a.step == Step::kConnecting || a.channel.queued() > 0;
      polled.push_back({a.channel.fd(), static_cast<short>(out ? POLLIN | POLLOUT : POLLIN), 0});
      order.push_back(&a);
      wake = std::min(wake, anew_at(a));
      if (once_ && a.step == Step::kConnecting) wake = std::min(wake, a.first_at + answer_time_);
    }
    if (held_back_) wake = std::min(wake, now + kPatience);
    if (::poll(polled.data(), polled.size(), poll_ms(wake, now)) < 0 && errno != EINTR) {
      throw Error(fmt::format("poll failed: {}", std::strerror(errno)));
    }
    now = Clock::now();
    for (std::size_t i = 0; i < order.size(); ++i) {
      Attempt& a = *order[i];
      if (polled[i].revents != 0 && serve(a, now)) return &a;
      if (once_ && a.step == Step::kConnecting && now >= a.first_at + answer_time_)
        give_up(a, "host unreachable: no answer to the connection attempt", now);
      if (now >= anew_at(a)) connect_anew(a, now);
    }
    say_hello(now);
    return nullptr;
  }

  // Returns the time of the next connection attempt. If thousands of ranks connect at once, the
  // listen queue overflows. The kernel drops some SYNs, and all clients' kernels retry at the same
  // times, after 1, 3, 7, 15 s. Other clients see a connection that the listener does not have.
  // Therefore each rank has its own retry time. With `once`, the door may accept late: the
  // connection then waits if the queue holds all ranks.
  Clock::time_point anew_at(const Attempt& a) const {
    const std::chrono::milliseconds own(spec_.rank * std::int64_t{619} % 1000);
    if (a.step == Step::kConnecting) return a.begun_at + 1s + own;
    if (a.step == Step::kSilent && a.nonce.empty() && (!once_ || spec_.size > listen_queue()))
      return a.connected_at + a.silence + own;
    return Clock::time_point::max();
  }

  void connect_anew(Attempt& a, Clock::time_point now) {
    if (a.step == Step::kSilent) {
      a.silence *= 2;
      a.first_at = {};
      if (!once_) give_up(a, "connected, but no handshake was received", now);
    }
    a.channel.close();
    a.step = Step::kStarted;
    a.next = now;
  }

  // Returns true when rank 0 accepted this rank on this connection.
  bool serve(Attempt& a, Clock::time_point now) {
    if (a.step == Step::kConnecting) {
      if (const int error = connect_error(a.channel.fd()); error != 0) {
        give_up(a, std::strerror(error), now);
        return false;
      }
      a.step = Step::kSilent;
      a.connected_at = now;
    }
    a.channel.flush();
    wire::Frame frame;
    switch (a.channel.receive(frame)) {
      case Channel::Got::kNothing:
        return false;
      case Channel::Got::kEnd:
        give_up(a, a.channel.why(), now);
        return false;
      case Channel::Got::kFrame:
        break;
    }
    if (a.nonce.empty() && frame.type == wire::Type::kChallenge) {
      if (const auto challenge = wire::decode_challenge(frame.payload)) {
        if (challenge->version == wire::kVersion) {
          a.nonce = challenge->nonce;
          return false;
        }
        give_up(a,
                fmt::format("the endpoint uses rendezvous protocol version {}, this rank version "
                            "{}: use the same weft on every host",
                            challenge->version, wire::kVersion),
                now);
        return false;
      }
    }
    if (a.hello_sent && frame.type == wire::Type::kReply) {
      const auto reply = wire::decode_reply(frame.payload, spec_.secret, a.nonce, hello_);
      if (reply && !reply->accepted) throw WrongSetUp(reply->text);
      if (reply) {
        root_ = reply->text;
        // After this reply rank 0's deadline applies, since its error names the missing ranks.
        start_deadline_ = now + std::chrono::milliseconds(reply->remaining_ms) + kGrace;
        a.step = Step::kAccepted;
        return true;
      }
    }
    give_up(a, "malformed frame", now);
    return false;
  }

  // Sends one hello at a time: the first endpoint that responds to it is rank 0, whatever its
  // address. An unresponsive endpoint (another job's, a stopped process) delays the next endpoint
  // only by kPatience.
  void say_hello(Clock::time_point now) {
    held_back_ = false;
    for (auto& [text, a] : attempts_) {
      if (a.channel.open() && a.hello_sent && now < a.hello_at + kPatience) held_back_ = true;
    }
    if (held_back_) return;
    for (auto& [text, a] : attempts_) {
      if (!a.channel.open() || a.nonce.empty() || a.hello_sent) continue;
      a.hello_sent = held_back_ = true;
      a.hello_at = now;
      a.step = Step::kGreeted;
      a.channel.send(wire::Type::kHello, wire::encode(hello_, spec_.secret, a.nonce));
      return;
    }
  }

  void give_up(Attempt& a, const std::string& why, Clock::time_point now) {
    if (once_) throw Error(fmt::format("{}: {}", a.to.text, why));
    if (a.step >= nearest_) {
      nearest_ = a.step;
      nearest_why_ = fmt::format("{}: {}", a.to.text, why);
    }
    a.channel.close();
    a.step = Step::kStarted;
    a.next = now + a.backoff;
    a.backoff = std::min<std::chrono::milliseconds>(a.backoff * 2, 500ms);
  }

  std::string why_not() const {
    std::string text =
        fmt::format("rank {} could not reach rank 0 at \"{}\", port{} {}, within {} ms", spec_.rank,
                    spec_.address, spec_.ports.size() == 1 ? "" : "s", fmt::join(spec_.ports, ", "),
                    spec_.timeout.count());
    std::string mute;
    for (const auto& [name, a] : attempts_) {
      if (a.channel.open() && a.step >= Step::kSilent) mute = name;
    }
    if (attempts_.empty()) return text + ": " + lookup_problem_;
    if (nearest_ >= Step::kGreeted) {
      return fmt::format(
          "{} ({}): it did not accept this rank, so the secrets differ (WEFT_SECRET) "
          "or the port is another program's",
          text, nearest_why_);
    }
    if (!mute.empty())
      return fmt::format("{}: connected to {}, but it does not answer", text, mute);
    if (nearest_why_.empty()) return text + ": no answer";
    return fmt::format("{}: {}; is rank 0 running, and is that its address?", text, nearest_why_);
  }

  void wait_for_start(RootLink& link) {
    for (;;) {
      wire::Frame frame;
      switch (link.channel.receive(frame)) {
        case Channel::Got::kEnd:
          throw Error(fmt::format("{} died while the job was assembling: {}", link.who,
                                  link.channel.why()));
        case Channel::Got::kFrame:
          if (frame.type == wire::Type::kStart) {
            if (const auto period_ms = wire::decode_start(frame.payload)) {
              link.period = std::chrono::milliseconds(*period_ms);
              return;
            }
          } else if (frame.type == wire::Type::kFailure) {
            if (const auto failure = wire::decode_failure(frame.payload)) {
              throw_assembly_failure(failure->status);
            }
          }
          throw Error(
              fmt::format("{} sent a malformed frame while the job was assembling", link.who));
        case Channel::Got::kNothing:
          break;
      }
      link.channel.flush();
      const auto now = Clock::now();
      if (now >= start_deadline_) {
        throw Error(fmt::format("{} accepted rank {} but did not start the job before the deadline",
                                link.who, spec_.rank));
      }
      pollfd polled{link.channel.fd(), POLLIN, 0};
      if (link.channel.queued() > 0) polled.events |= POLLOUT;
      (void)::poll(&polled, 1, poll_ms(start_deadline_, now));
    }
  }

  static constexpr auto kPatience = 1000ms;
  static constexpr auto kTalk = 5000ms;   // rank 0 drops slower handshakes
  static constexpr auto kGrace = 2000ms;  // time for rank 0's error to arrive

  const JobSpec& spec_;
  const bool once_;
  const std::chrono::milliseconds answer_time_ = answer_time(spec_);
  const Clock::time_point deadline_;
  Clock::time_point start_deadline_{};
  Clock::time_point look_up_next_{};
  wire::Hello hello_;
  std::map<std::string, Attempt> attempts_;  // attempts by endpoint
  bool held_back_ = false, numbers_first_ = true;
  std::string root_, lookup_problem_, nearest_why_;
  Step nearest_ = Step::kStarted;
};

}  // namespace

RootLink join_survivors(const JobSpec& spec, const std::string& door, std::string& mask) {
  JobSpec there = spec;
  const auto space = door.find(' ');
  if (space == std::string::npos) throw Error("it has no listening port");
  there.address = door.substr(0, space);
  there.ports = {port_in(door.substr(space + 1))};
  if (there.ports[0] == 0) throw Error(fmt::format("invalid address '{}': no valid port", door));
  // That rank also waits for the other ranks, for its own timeout, which starts when it calls
  // shrink().
  there.timeout = 2 * spec.timeout;
  RootLink link = BootstrapClient(there, true).assemble();
  const auto until = Clock::now() + spec.timeout;
  for (;;) {
    wire::Frame frame;
    const Channel::Got got = link.channel.receive(frame);
    if (got == Channel::Got::kEnd) throw Error(link.channel.why());
    if (got == Channel::Got::kFrame) {
      const auto size = static_cast<std::size_t>(spec.size);
      if (frame.type != wire::Type::kShrunk || frame.payload.size() != size)
        throw Error("malformed frame");
      mask = frame.payload;
      return link;
    }
    const auto now = Clock::now();
    if (now >= until) throw Error("no answer before the deadline");
    pollfd polled{link.channel.fd(), POLLIN, 0};
    (void)::poll(&polled, 1, poll_ms(until, now));
  }
}

RootLink assemble_leaf(const JobSpec& spec) { return BootstrapClient(spec).assemble(); }

}  // namespace weft
