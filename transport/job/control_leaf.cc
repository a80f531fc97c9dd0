// The control plane on ranks other than 0; each has one connection, to rank 0.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "topo/base/log.h"
#include "transport/job/control_plane.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

class Leaf : public Plane {
 public:
  // door: this rank's listener if rank 0 already knows it; otherwise opened and announced.
  Leaf(const JobSpec& spec, RootLink link, Fd door = {})
      : Plane(spec, link.period),
        root_(std::move(link.channel)),
        root_who_(std::move(link.who)),
        door_(std::move(door)),
        heard_(Clock::now()) {
    if (door_) return;
    const std::string at = open_door(door_);
    if (!at.empty()) root_.send(wire::Type::kDoor, at);
  }

  std::vector<Rank> silent(std::chrono::milliseconds age) const override {
    const Lock lock(mutex_);
    std::vector<Rank> ranks;
    if (left_ || goodbye_) return ranks;
    age = at_least_audible(age);
    // Without rank 0 the state of the other ranks is unknown.
    if (tick_ - heard_ >= age) return {0};
    // Ages as rank 0 reported them, plus the time since then, which is limited to rank 0's next
    // heartbeat.
    const auto since = std::min<Clock::duration>(tick_ - silence_at_, 2 * period_);
    for (const wire::Silence& s : silence_) {
      if (s.rank == rank_ || s.rank < 0 || s.rank >= size_) continue;
      if (std::chrono::milliseconds(s.age_ms) + since >= age) ranks.push_back(s.rank);
    }
    return ranks;
  }

  Shrunk shrink() override {
    Lock lock(mutex_);
    check_shrink();
    shrinking_ = true;
    Fd next_door;
    if (root_.open() && !goodbye_ && !taken_for_dead(0)) {
      // The door is announced now, since rank 0 may die before the new job has started on all
      // ranks.
      root_.send(wire::Type::kShrink, open_door(next_door));
      wake();
      // Rank 0 waits for the other ranks at most for the timeout, measured from its own call of
      // shrink().
      const auto until = std::chrono::steady_clock::now() + 2 * timeout_ + kGrace;
      changed_.wait_until(lock, until, [&]() WEFT_REQUIRES(mutex_) {
        return !mask_.empty() || !root_.open() || stopping_ || goodbye_ || taken_for_dead(0) ||
               taken_for_dead(rank_);
      });
    }
    if (mask_.empty()) {
      check_shrink();
      return take_over(lock);
    }
    std::vector<Rank> survivors;
    const JobSpec spec = shrunk_spec(mask_, survivors);
    retire(lock);
    door_.reset();
    return {std::make_unique<Leaf>(spec, RootLink{std::move(root_), root_who_, period_},
                                   std::move(next_door)),
            std::move(survivors)};
  }

  void leave() noexcept override {
    Lock lock(mutex_);
    if (left_) return;
    left_ = true;
    root_.send(wire::Type::kLeave, {});
    wake();
    // If the connection closed before rank 0 reads this frame, this rank would count as dead.
    const auto enough = std::chrono::steady_clock::now() +
                        std::min<std::chrono::milliseconds>(timeout_, kGoodbyeTime);
    changed_.wait_until(lock, enough, [&]() WEFT_REQUIRES(mutex_) {
      return goodbye_ || !root_.open() || stopping_ || blamed(0);  // rank 0 cannot read it
    });
  }

 protected:
  void contribute(std::string_view mine, wire::Gathering what) override WEFT_REQUIRES(mutex_) {
    what_ = what;
    gather_at_ = Clock::now();
    incoming_.clear();
    if (goodbye_) return fail_gather("rank 0 has left the job");
    gathering_ = true;
    root_.send_gather(sequence_ | static_cast<std::uint64_t>(what),
                      std::make_shared<const std::string>(mine));
  }

  // Rank 0 decides which failure ends gathers; until then this failure ends them on this rank.
  void tell(const Status& failure, const Scope& scope) override WEFT_REQUIRES(mutex_) {
    if (scope.ends_gathers() && !failed()) set_failure(failure);
    root_.send(wire::Type::kFailure, wire::encode_failure(failure, scope));
  }

  void await_verdict(const Scope& scope, Lock& lock) override WEFT_REQUIRES(mutex_) {
    const auto until = std::chrono::steady_clock::now() + kVerdictTime;
    changed_.wait_until(lock, until, [&]() WEFT_REQUIRES(mutex_) {
      return decided(scope) || !root_.open() || stopping_;
    });
  }

  void carry(std::uint32_t box, Rank to, std::string_view bytes) override WEFT_REQUIRES(mutex_) {
    root_.send(wire::Type::kLetter, wire::encode(wire::Numbered{letter_id(box, to), bytes}));
  }

  void ask(std::uint32_t number) override WEFT_REQUIRES(mutex_) {
    root_.send(wire::Type::kInquire, wire::encode(wire::Numbered{number, {}}));
  }

  Clock::time_point prepare(std::vector<pollfd>& polled, Clock::time_point now) override
      WEFT_REQUIRES(mutex_) {
    if (stopping_ && stop_at_ == Clock::time_point::max()) stop_at_ = now + kLastWords;
    if (root_.open()) {
      const bool writing = root_.queued() > 0;
      polled.push_back({root_.fd(), static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), 0});
    }
    if (fresh_) return now;
    return inquiry_due(std::min(next_beat_, stop_at_));
  }

  bool serve(const std::vector<pollfd>& polled, Clock::time_point now) override
      WEFT_REQUIRES(mutex_) {
    // The channel may already hold frames that arrived together with the former job's last frames.
    if (std::exchange(fresh_, false) || (polled.size() > 1 && polled[1].revents != 0))
      serve_root(now);
    const bool beat = now >= next_beat_;
    serve_inquiry(now, beat);
    if (beat) {
      if (root_.queued() == 0) root_.send(wire::Type::kHeartbeat, {});
      next_beat_ = now + period_;
    }
    // Rank 0 reports late ranks. This branch handles an unresponsive rank 0.
    if (gathering_ && now >= gather_at_ + timeout_ + kGrace) {
      gathering_ = false;
      fail_gather(fmt::format("{} did not answer in all_gather number {} within {} ms", root_who_,
                              sequence_, timeout_.count()));
    }
    if (!stopping_) return true;
    if (root_.open() && root_.queued() > 0 && now < stop_at_) return true;
    root_.close();
    return false;
  }

 private:
  static constexpr auto kGoodbyeTime = 5000ms;
  static constexpr auto kLastWords = 500ms;
  static constexpr auto kVerdictTime = 1000ms;  // rank 0 has failed if it takes longer
  static constexpr auto kGrace = 2000ms;        // for rank 0's verdict to arrive
  static constexpr std::size_t kDoorsAtOnce = 64;
  static constexpr std::size_t kMostDoorBytes = std::size_t{1} << 30;

  void serve_root(Clock::time_point now) WEFT_REQUIRES(mutex_) {
    root_.flush();
    wire::Frame frame;
    Channel::Got got = Channel::Got::kFrame;
    bool understood = true;
    while (understood && !handed_over_ && (got = root_.receive(frame)) == Channel::Got::kFrame) {
      understood = handle(frame, now);
    }
    if (root_.heard()) {
      heard_ = now;
      if (root_.partial()) gather_at_ = now;  // only gathers span several frames
    }
    if (understood && got != Channel::Got::kEnd) return;
    const std::string why = understood ? root_.why() : "unexpected frame";
    root_.close();
    changed_.notify_all();
    if (goodbye_) {
      if (gathering_) fail_gather("rank 0 has left the job");
      return;
    }
    // The control plane ends with rank 0.
    if (!left_ && !decided({}))
      take_verdict(Status(Code::kPeerFailed, fmt::format("{} died: {}", root_who_, why), 0), {});
  }

  void take_verdict(const Status& failure, const Scope& scope) WEFT_REQUIRES(mutex_) {
    if (scope.ends_gathers() && !std::exchange(verdict_, true)) set_failure(failure);
    hear(failure, scope);
  }

  bool handle(const wire::Frame& frame, Clock::time_point now) WEFT_REQUIRES(mutex_) {
    switch (frame.type) {
      case wire::Type::kHeartbeat: {
        auto silence = wire::decode_heartbeat(frame.payload);
        if (!silence) return false;
        silence_ = std::move(*silence);
        silence_at_ = now;
        return true;
      }
      case wire::Type::kGather: {
        const auto part = wire::decode_numbered(frame.payload);
        if (!part) return false;
        if (!gathering_) return true;  // already failed on this rank
        if (part->sequence != sequence_) return false;
        gather_at_ = now;
        incoming_ += part->bytes;
        if (frame.more) return true;
        gathering_ = false;
        std::string bytes = std::exchange(incoming_, {});
        if (what_ == wire::Gathering::kToRoot || what_ == wire::Gathering::kFromRoot) {
          std::vector<std::string> own;
          if (what_ == wire::Gathering::kFromRoot) own.push_back(std::move(bytes));
          finish_gather(std::move(own));
          return true;
        }
        auto parts = what_ == wire::Gathering::kForEach
                         ? wire::decode_parts(bytes, size_)
                         : wire::unpack_parts(bytes, size_, SIZE_MAX);
        if (!parts) return false;
        finish_gather(std::move(*parts));
        return true;
      }
      case wire::Type::kGatherFailed: {
        const auto failed = wire::decode_numbered(frame.payload);
        if (!failed) return false;
        gathering_ = false;
        fail_gather(std::string(failed->bytes));
        return true;
      }
      case wire::Type::kFailure: {
        const auto failure = wire::decode_failure(frame.payload);
        if (!failure) return false;
        take_verdict(failure->status, failure->scope);
        return true;
      }
      case wire::Type::kInquire: {
        const auto asked = wire::decode_numbered(frame.payload);
        if (!asked) return false;
        const std::string known = snapshot();
        root_.send(wire::Type::kTestimony, wire::encode(wire::Numbered{asked->sequence, known}));
        return true;
      }
      case wire::Type::kTestimony: {
        const auto told = wire::decode_numbered(frame.payload);
        if (!told) return false;
        take_snapshot(static_cast<Rank>(told->sequence >> 32 & INT32_MAX),
                      static_cast<std::uint32_t>(told->sequence), told->bytes);
        return true;
      }
      case wire::Type::kLetter: {
        const auto letter = wire::decode_numbered(frame.payload);
        const auto from = letter ? letter->sequence & UINT32_MAX : UINT32_MAX;
        if (from >= static_cast<std::uint64_t>(size_)) return false;
        office_->deliver(static_cast<std::uint32_t>(letter->sequence >> 32),
                         static_cast<Rank>(from), letter->bytes);
        return true;
      }
      case wire::Type::kShrunk:
        if (frame.payload.size() != static_cast<std::size_t>(size_)) return false;
        mask_ = frame.payload;
        handed_over_ = true;  // later frames belong to the new job
        changed_.notify_all();
        return true;
      case wire::Type::kDoors: {
        auto doors = wire::unpack_parts(frame.payload, size_, kMostDoorBytes);
        if (!doors) return false;
        doors_ = std::move(*doors);
        return true;
      }
      case wire::Type::kGoodbye:
        goodbye_ = true;
        changed_.notify_all();
        return true;
      default:
        return false;
    }
  }

  // Opens a listener to which other ranks connect after rank 0 has failed. Returns "address port",
  // or an empty string on failure.
  std::string open_door(Fd& door) const WEFT_REQUIRES(mutex_) {
    const std::string here = local_address(root_.fd());
    if (here.empty()) return {};
    try {
      const std::vector<std::uint16_t> any{0};
      // Other ranks connect to the address that this rank uses toward rank 0, so it listens only on
      // that address. On rank 0's host this may be a loopback address although other hosts connect:
      // in that case rank 0 replaces it by an address that they can reach.
      const bool elsewhere = on_loopback(here) && !all_on_loopback(spec_.address);
      door = elsewhere ? listen_on(spec_.address, any) : listen_at(here);
      return fmt::format("{} {}", here, port_of(door.get()));
    } catch (const Error& e) {
      log().debug("weft: rank {}: if rank 0 dies, no rank can replace it: {}", rank_, e.what());
      return {};
    }
  }

  // Rank 0 has failed: the lowest surviving rank takes over its role.
  Shrunk take_over(Lock& lock) WEFT_REQUIRES(mutex_) {
    if (doors_.empty())
      throw Error(
          fmt::format("{}; no rank can replace rank 0, which failed first: not every rank could "
                      "listen on a port",
                      failure_.to_string()));
    if (root_.open()) {
      const Status why(Code::kPeerFailed,
                       fmt::format("the other ranks continued without {}", root_who_), 0);
      root_.send(wire::Type::kFailure, wire::encode_failure(why));
    }
    retire(lock);
    root_.close();
    std::vector<Rank> dead;
    for (Rank r = 0; r < size_; ++r)
      if (taken_for_dead(r)) dead.push_back(r);
    std::string problems;
    std::vector<bool> mute(1);  // by rank; filled by parallel probes
    for (Rank r = 1; r < rank_; ++r) {
      const auto next = static_cast<std::size_t>(r) + 1;
      if (taken_for_dead(r) || (next <= mute.size() && mute[next - 1])) continue;
      std::string mask;
      RootLink link;
      try {
        link = join_survivors(spec_, doors_[static_cast<std::size_t>(r)], mask);
      } catch (const Error& e) {
        problems += fmt::format("; rank {}: {}", r, e.what());
        // If a host died, none of its ranks responds, so the next doors are probed in parallel.
        if (next < mute.size() || r + 1 == rank_) continue;
        mute.resize(next);
        const std::size_t count = std::min(kDoorsAtOnce, static_cast<std::size_t>(rank_) - next);
        const auto more = mute_doors(spec_, std::span(doors_).subspan(next, count));
        mute.insert(mute.end(), more.begin(), more.end());
        continue;
      }
      std::vector<Rank> survivors;
      const JobSpec spec = spec_of_most(mask, r, survivors);
      link.who = renumber(link.who, 0);
      door_.reset();
      return {std::make_unique<Leaf>(spec, std::move(link)), std::move(survivors)};
    }
    log().info("weft: rank {} takes over from rank 0{}", rank_, problems);
    std::string mask;
    std::vector<Member> all = assemble_survivors(spec_, std::move(door_), dead, doors_, mask);
    std::vector<Rank> survivors;
    const JobSpec spec = spec_of_most(mask, rank_, survivors);
    std::vector<Member> members(1);
    for (std::size_t i = 1; i < survivors.size(); ++i) {
      members.push_back(std::move(all[static_cast<std::size_t>(survivors[i])]));
      members.back().who = renumber(members.back().who, static_cast<Rank>(i));
    }
    return {make_root_plane(spec, std::move(members)), std::move(survivors)};
  }

  // Throws Error, on each of these ranks, if fewer than half of the ranks joined the heir.
  JobSpec spec_of_most(std::string_view mask, Rank heir, std::vector<Rank>& survivors) const {
    JobSpec spec = shrunk_spec(mask, survivors);
    if (2 * survivors.size() < static_cast<std::size_t>(size_))
      throw Error(
          fmt::format("after rank 0's failure only {} of {} ranks joined rank {}: the others may "
                      "have continued without them",
                      survivors.size(), size_, heir));
    return spec;
  }

  Channel root_ WEFT_GUARDED_BY(mutex_);
  const std::string root_who_;
  Fd door_ WEFT_GUARDED_BY(mutex_);
  // By rank; empty until rank 0 has sent them.
  std::vector<std::string> doors_ WEFT_GUARDED_BY(mutex_);
  std::string mask_ WEFT_GUARDED_BY(mutex_);   // the survivors
  bool fresh_ WEFT_GUARDED_BY(mutex_) = true;  // the thread has not read yet
  Clock::time_point heard_ WEFT_GUARDED_BY(mutex_);
  // The silence that rank 0 reported at silence_at_.
  std::vector<wire::Silence> silence_ WEFT_GUARDED_BY(mutex_);
  Clock::time_point silence_at_ WEFT_GUARDED_BY(mutex_){};
  // Rank 0 has confirmed this rank's leave(), or is leaving the job itself.
  bool goodbye_ WEFT_GUARDED_BY(mutex_) = false;
  bool verdict_ WEFT_GUARDED_BY(mutex_) = false;  // rank 0 has decided on failure_
  bool gathering_ WEFT_GUARDED_BY(mutex_) = false;
  wire::Gathering what_ WEFT_GUARDED_BY(mutex_) = wire::Gathering::kForAll;
  // The time at which the all_gather began or last made progress.
  Clock::time_point gather_at_ WEFT_GUARDED_BY(mutex_){};
  std::string incoming_ WEFT_GUARDED_BY(mutex_);
  Clock::time_point next_beat_ WEFT_GUARDED_BY(mutex_){};
  Clock::time_point stop_at_ WEFT_GUARDED_BY(mutex_) = Clock::time_point::max();
};

}  // namespace

std::unique_ptr<Job> make_leaf_job(const JobSpec& spec, RootLink link) {
  return make_job(std::make_unique<Leaf>(spec, std::move(link)));
}

}  // namespace weft
