// The control plane on rank 0: receives heartbeats, forwards letters (out-of-band messages) and
// inquiries, detects dead ranks, decides which failure was the first, and shrinks the job.
#include "transport/job/control_root.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "topo/base/environment.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

constexpr auto kLastWords = 500ms;  // time to flush queued frames in a stop() without leave()
constexpr auto kInquiryTurn = 300ms;

// If more is queued, skip the heartbeat: any frame shows the peer that rank 0 is alive.
constexpr std::size_t kBusyBytes = 64 * 1024;
// If more bytes are queued, the receiver is probably stopped, and further letters are dropped.
constexpr std::size_t kMostLetterBytes = std::size_t{16} << 20;

// Limits on the memory that one rank can make rank 0 use. Bytes of snapshots queued for a rank that
// does not read:
constexpr std::size_t kMostWaiting = std::size_t{64} << 20;
// Bytes of a door's text, and the number of communicator failures recorded:
constexpr std::size_t kMostDoor = 256, kMostFailures = std::size_t{1} << 14;
// Frames read from one rank before the next rank is served:
constexpr int kMostFrames = 256;
// Bytes of one rank in one gather:
std::size_t gather_limit() {
  constexpr const char* kName = "WEFT_GATHER_BYTES";
  if (!is_set(kName)) return std::size_t{1} << 30;
  return static_cast<std::size_t>(required_number(kName, 1 << 12, std::int64_t{1} << 50));
}

}  // namespace

RootPlane::RootPlane(const JobSpec& spec, std::vector<Member> members)
    : Plane(spec, heartbeat_period(spec.timeout)), gather_most_(gather_limit()) {
  const auto now = Clock::now();
  for (Member& m : members) peers_.push_back({.member = std::move(m), .heard = now});
}

std::vector<Rank> RootPlane::silent(std::chrono::milliseconds age) const {
  const Lock lock(mutex_);
  std::vector<Rank> ranks;
  if (left_) return ranks;
  for (Rank r = 1; r < size_; ++r) {
    const Peer& p = peer(r);
    if (!p.left && tick_ - p.heard >= at_least_audible(age)) ranks.push_back(r);
  }
  return ranks;
}

Plane::Shrunk RootPlane::shrink() {
  Lock lock(mutex_);
  check_shrink();
  shrinking_ = true;
  const auto until = std::chrono::steady_clock::now() + timeout_;
  changed_.wait_until(lock, until, [&]() WEFT_REQUIRES(mutex_) {
    return stopping_ || taken_for_dead(0) ||
           std::none_of(peers_.begin() + 1, peers_.end(), [&](const Peer& p) WEFT_REQUIRES(mutex_) {
             return may_come(p) && !p.shrinks;
           });
  });
  check_shrink();
  std::string mask = "1";
  for (Rank r = 1; r < size_; ++r) mask += may_come(peer(r)) && peer(r).shrinks ? '1' : '0';
  std::vector<Rank> survivors;
  const JobSpec spec = shrunk_spec(mask, survivors);
  const std::string doors = doors_of(survivors, &Peer::next_door);
  // From here on the thread reads no frames, since later frames belong to the new job.
  handed_over_ = true;
  for (Rank r = 1; r < size_; ++r) {
    Channel& c = peer(r).member.channel;
    if (mask[static_cast<std::size_t>(r)] == '1') {
      c.send(wire::Type::kShrunk, mask);
      if (!doors.empty()) c.send(wire::Type::kDoors, doors);
    } else if (c.open()) {
      const Status why(
          Code::kPeerFailed,
          fmt::format("{} did not call shrink within {} ms", peer(r).member.who, timeout_.count()),
          r);
      c.send(wire::Type::kFailure, wire::encode_failure(why));
      c.close();
    }
  }
  retire(lock);
  std::vector<Member> members(1);
  for (std::size_t i = 1; i < survivors.size(); ++i) {
    members.push_back(std::move(peer(survivors[i]).member));
    members.back().who = renumber(members.back().who, static_cast<Rank>(i));
  }
  auto next = std::make_unique<RootPlane>(spec, std::move(members));
  // A rank without a door (too many open files) may announce a door later; the other ranks announce
  // their doors only once.
  {
    const Lock of_next(next->mutex_);  // uncontended: not shared yet
    for (std::size_t i = 1; i < survivors.size(); ++i) {
      next->peers_[i].door = std::move(peer(survivors[i]).next_door);
      next->doors_ += !next->peers_[i].door.empty();
    }
  }
  return {std::move(next), std::move(survivors)};
}

// Other ranks may still use the job: rank 0 serves them until stop() and for a limited time in
// stop().
void RootPlane::leave() noexcept {
  const Lock lock(mutex_);
  left_ = true;
  if (gathering_) give_up_gather("rank 0 has left the job");
  for (Peer& p : peers_)  // these ranks wait for this rank's shrink()
    if (p.shrinks) p.member.channel.send(wire::Type::kGoodbye, {});
}

Clock::time_point RootPlane::prepare(std::vector<pollfd>& polled, Clock::time_point now) {
  if (stopping_ && stop_at_ == Clock::time_point::max()) {
    stop_at_ = now + (left_ ? timeout_ : std::chrono::milliseconds(kLastWords));
  }
  order_.clear();
  for (Rank r = 1; r < size_; ++r) {
    const Channel& c = peer(r).member.channel;
    if (!c.open()) continue;
    polled.push_back({c.fd(), static_cast<short>(c.queued() > 0 ? POLLIN | POLLOUT : POLLIN), 0});
    order_.push_back(r);
  }
  if (std::ranges::any_of(peers_, &Peer::more)) return now;
  const auto next = std::min(next_beat_, stop_at_);
  return inquiry_due(inquiries_.empty() ? next : std::min(next, next_inquiry_));
}

bool RootPlane::serve(const std::vector<pollfd>& polled, Clock::time_point now) {
  // Reads all connections before it handles their ends: if two connections end in one iteration,
  // only the ranks' earlier reports show which end was first.
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (polled[i + 1].revents != 0 || peer(order_[i]).more) serve_peer(order_[i], now);
  }
  serve_inquiry(now, now >= next_beat_);
  if (!inquiries_.empty() && now >= next_inquiry_) pass_on(now);
  if (now >= next_beat_) {
    beat(now);
    next_beat_ = now + period_;
  }
  if (gathering_) check_gather(now);
  return !finished(now);
}

void RootPlane::serve_peer(Rank r, Clock::time_point now) {
  Peer& p = peer(r);
  Channel& c = p.member.channel;
  c.flush();
  wire::Frame frame;
  Channel::Got got = Channel::Got::kFrame;
  bool understood = true;
  p.more = true;
  for (int i = 0; i < kMostFrames && understood && p.more; ++i) {
    got = c.receive(frame);
    p.more = got == Channel::Got::kFrame;
    if (p.more) understood = handle(r, frame);
  }
  p.more = p.more && understood;
  if (c.heard()) {
    p.heard = now;
    if (gathering_ && !p.complete && c.partial()) {  // most likely a part of this gather
      p.begun = true;
      last_part_ = now;
    }
  }
  if (understood && got != Channel::Got::kEnd) return;
  const std::string why = understood ? c.why() : "unexpected frame";
  c.close();
  changed_.notify_all();
  if (p.left) return;
  declare(Status(Code::kPeerFailed, fmt::format("{} died: {}", p.member.who, why), r),
          {Scope::Ends::kRank, r});
}

bool RootPlane::handle(Rank r, const wire::Frame& frame) {
  Peer& p = peer(r);
  switch (frame.type) {
    case wire::Type::kHeartbeat:
      return true;
    case wire::Type::kGather: {
      const auto part = wire::decode_numbered(frame.payload);
      if (!part) return false;
      // Parts of a failed all_gather may still arrive.
      if (!gather_error_.empty() || failed()) return true;
      const std::uint64_t expected = gathering_ ? current_ : current_ + 1;
      if ((part->sequence & ~wire::kGatheringFlags) != expected || p.complete) return false;
      receive_part(r, part->bytes, frame.more,
                   wire::Gathering{part->sequence & wire::kGatheringFlags});
      return true;
    }
    case wire::Type::kFailure: {
      const auto failure = wire::decode_failure(frame.payload);
      if (!failure) return false;
      const auto& [status, scope] = *failure;
      // The sender's wait for rank 0's shrink() has timed out; other ranks will time out as well.
      if (p.shrinks && status.code() == Code::kPeerFailed && status.rank() == 0) {
        set_failure(status);
        hear(status, scope);
      }
      declare(status, scope);
      return true;
    }
    case wire::Type::kInquire: {
      const auto asked = wire::decode_numbered(frame.payload);
      if (!asked) return false;
      // Only the latest inquiry of a rank is served.
      const std::uint64_t id = inquiry_id(r, static_cast<std::uint32_t>(asked->sequence));
      const auto same = [r](std::uint64_t other) { return static_cast<Rank>(other >> 32) == r; };
      if (const auto before = std::ranges::find_if(inquiries_, same); before != inquiries_.end())
        *before = id;
      else
        inquiries_.push_back(id);
      return true;
    }
    case wire::Type::kTestimony: {
      const auto told = wire::decode_numbered(frame.payload);
      if (!told) return false;
      // The asking rank may be from the former job, with a number that does not exist in this job.
      if (told->sequence >> 32 >= static_cast<std::uint64_t>(size_)) return true;
      hand_over(static_cast<Rank>(told->sequence >> 32), r,
                static_cast<std::uint32_t>(told->sequence), told->bytes);
      return true;
    }
    case wire::Type::kLetter: {
      const auto letter = wire::decode_numbered(frame.payload);
      const auto to = letter ? letter->sequence & UINT32_MAX : UINT32_MAX;
      if (to >= static_cast<std::uint64_t>(size_)) return false;
      pass_letter(static_cast<std::uint32_t>(letter->sequence >> 32), static_cast<Rank>(to), r,
                  letter->bytes);
      return true;
    }
    case wire::Type::kShrink:
      if (frame.payload.size() > kMostDoor) return false;
      p.shrinks = true;
      p.next_door = frame.payload;
      if (left_) p.member.channel.send(wire::Type::kGoodbye, {});
      changed_.notify_all();
      return true;
    case wire::Type::kDoor:
      if (frame.payload.size() > kMostDoor) return false;
      if (frame.payload.empty()) return true;
      doors_ += p.door.empty();
      p.door = frame.payload;
      if (doors_ == size_ - 1) tell_doors();
      return true;
    case wire::Type::kLeave:
      p.left = true;
      changed_.notify_all();
      p.member.channel.send(wire::Type::kGoodbye, {});
      if (gathering_ && !p.complete) {
        give_up_gather(fmt::format("{} has left the job", p.member.who));
      }
      return true;
    default:
      return false;
  }
}

// Encodes the doors (listening ports) of these ranks, rank 0 first. Empty if one rank has no door:
// in that case the job cannot survive the failure of rank 0.
std::string RootPlane::doors_of(const std::vector<Rank>& ranks, std::string Peer::*door) const {
  // Ranks that connected over loopback are on this host; other hosts need an address that they can
  // reach.
  std::string here;
  for (const Peer& p : peers_)
    if (const std::string a = local_address(p.member.channel.fd()); !a.empty() && !on_loopback(a))
      here = a;
  std::vector<std::string> doors;
  for (const Rank r : ranks) {
    const std::string& at = peer(r).*door;
    if (r != 0 && at.empty()) return {};
    const std::size_t space = std::min(at.find(' '), at.size());
    const bool local = on_loopback(at.substr(0, space)) && !here.empty();
    doors.push_back(local ? here + at.substr(space) : at);
  }
  std::string payload = wire::pack_parts(doors);
  return payload.size() <= wire::kMaxFrameBytes ? payload : std::string();
}

void RootPlane::tell_doors() {
  std::vector<Rank> all(peers_.size());
  std::iota(all.begin(), all.end(), 0);
  const std::string doors = doors_of(all, &Peer::door);
  if (doors.empty()) return;
  for (Peer& p : peers_) p.member.channel.send(wire::Type::kDoors, doors);
}

// Records the first failure of a scope and broadcasts it, also to the rank that reported it.
void RootPlane::declare(const Status& failure, const Scope& scope) {
  if (decided(scope)) return;
  if (heard() >= kMostFailures && scope.ends == Scope::Ends::kGroup)
    return declare(
        {Code::kInternal, "more communicators have failed than a job can have", failure.rank()},
        {});
  if (scope.ends_gathers() && !failed()) set_failure(failure);
  hear(failure, scope);
  inquiries_.clear();
  const std::string payload = wire::encode_failure(failure, scope);
  for (Peer& p : peers_) p.member.channel.send(wire::Type::kFailure, payload);
}

// If a deadline expires on many ranks, all of them send inquiries at once. Rank 0 queues the
// inquiries, since the first verdict is the job's and makes most of the queued inquiries obsolete.
void RootPlane::pass_on(Clock::time_point now) {
  const std::uint64_t id = inquiries_.front();
  inquiries_.pop_front();
  next_inquiry_ = now + kInquiryTurn;
  const auto asker = static_cast<Rank>(id >> 32);
  if (asker != 0) hand_over(asker, 0, static_cast<std::uint32_t>(id), snapshot());
  const std::string payload = wire::encode(wire::Numbered{id, {}});
  for (Rank r = 1; r < size_; ++r)
    if (r != asker && peer(r).member.channel.queued() < kBusyBytes)
      peer(r).member.channel.send(wire::Type::kInquire, payload);
}

void RootPlane::pass_letter(std::uint32_t box, Rank to, Rank from, std::string_view bytes) {
  if (to == 0) return office_->deliver(box, from, bytes);
  Channel& c = peer(to).member.channel;
  if (c.queued() < kMostLetterBytes)
    c.send(wire::Type::kLetter, wire::encode(wire::Numbered{letter_id(box, from), bytes}));
}

void RootPlane::hand_over(Rank to, Rank from, std::uint32_t number, std::string_view bytes) {
  if (to == 0) return take_snapshot(from, number, bytes);
  if (peer(to).member.channel.queued() > kMostWaiting) return;
  peer(to).member.channel.send(wire::Type::kTestimony,
                               wire::encode(wire::Numbered{inquiry_id(from, number), bytes}));
}

void RootPlane::beat(Clock::time_point now) {
  std::vector<wire::Silence> silent;
  for (Rank r = 1; r < size_; ++r) {
    const Peer& p = peer(r);
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - p.heard);
    if (!p.left && age >= 2 * period_) {
      silent.push_back(
          {r, static_cast<std::uint32_t>(std::min<std::int64_t>(age.count(), UINT32_MAX))});
    }
  }
  const std::string payload = wire::encode_heartbeat(silent);
  for (Peer& p : peers_) {
    Channel& c = p.member.channel;
    if (c.queued() < kBusyBytes) c.send(wire::Type::kHeartbeat, payload);
  }
}

// Without leave(): the thread still sends queued frames. After leave(): it serves until the other
// ranks have left or died or the timeout has expired, and then sends kGoodbye.
bool RootPlane::finished(Clock::time_point now) {
  if (!stopping_) return false;
  bool idle = true;
  for (const Peer& p : peers_) {
    const Channel& c = p.member.channel;
    // A failed rank may be stopped: it may never leave or read its queued frames.
    if (blamed(static_cast<Rank>(&p - peers_.data()))) continue;
    const bool working = left_ && !p.left;
    if (c.open() && (working || c.queued() > 0)) idle = false;
  }
  if (!idle && now < stop_at_) return false;
  for (Peer& p : peers_) {
    if (left_) p.member.channel.send(wire::Type::kGoodbye, {});
    p.member.channel.close();
  }
  return true;
}

std::unique_ptr<Plane> make_root_plane(const JobSpec& spec, std::vector<Member> members) {
  return std::make_unique<RootPlane>(spec, std::move(members));
}

std::unique_ptr<Job> make_root_job(const JobSpec& spec, std::vector<Member> members) {
  return make_job(std::make_unique<RootPlane>(spec, std::move(members)));
}

}  // namespace weft
