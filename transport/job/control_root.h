// The control plane on rank 0, the center of the star. control_root.cc serves the other ranks,
// detects dead ranks and decides which failure was the first; control_gathers.cc runs gathers.
#pragma once

#include <poll.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/job/control_plane.h"

namespace weft {

class RootPlane : public Plane {
 public:
  RootPlane(const JobSpec& spec, std::vector<Member> members);

  std::vector<Rank> silent(std::chrono::milliseconds age) const override;
  Shrunk shrink() override;
  // Other ranks may still use the job: rank 0 serves them until stop() and for a limited time in
  // stop().
  void leave() noexcept override;

 protected:
  void contribute(std::string_view mine, wire::Gathering what) override WEFT_REQUIRES(mutex_) {
    receive_part(0, mine, false, what);
  }
  void tell(const Status& failure, const Scope& scope) override WEFT_REQUIRES(mutex_) {
    declare(failure, scope);
  }
  void carry(std::uint32_t box, Rank to, std::string_view bytes) override WEFT_REQUIRES(mutex_) {
    pass_letter(box, to, 0, bytes);
  }
  void ask(std::uint32_t number) override WEFT_REQUIRES(mutex_) {
    inquiries_.push_back(inquiry_id(0, number));
  }
  Clock::time_point prepare(std::vector<pollfd>& polled, Clock::time_point now) override
      WEFT_REQUIRES(mutex_);
  bool serve(const std::vector<pollfd>& polled, Clock::time_point now) override
      WEFT_REQUIRES(mutex_);

 private:
  struct Peer {
    Member member;
    Clock::time_point heard;
    bool left = false;
    std::string part = {};  // the rank's part of the current gather
    bool begun = false, complete = false;
    wire::Gathering what = wire::Gathering::kForAll;
    bool shrinks = false;
    // The channel may hold complete frames, which poll() does not report.
    bool more = false;
    std::string door = {}, next_door = {};  // in this job, and in the job after shrink()
  };

  Peer& peer(Rank r) WEFT_REQUIRES(mutex_) { return peers_[static_cast<std::size_t>(r)]; }
  const Peer& peer(Rank r) const WEFT_REQUIRES(mutex_) {
    return peers_[static_cast<std::size_t>(r)];
  }
  bool may_come(const Peer& p) const WEFT_REQUIRES(mutex_) {
    return p.member.channel.open() && !p.left &&
           !taken_for_dead(static_cast<Rank>(&p - peers_.data()));
  }

  // Defined in control_root.cc:
  void serve_peer(Rank r, Clock::time_point now) WEFT_REQUIRES(mutex_);
  bool handle(Rank r, const wire::Frame& frame) WEFT_REQUIRES(mutex_);
  // Encodes the doors (listening ports) of these ranks, rank 0 first. Empty if one rank has no
  // door: in that case the job cannot survive the failure of rank 0.
  std::string doors_of(const std::vector<Rank>& ranks, std::string Peer::*door) const
      WEFT_REQUIRES(mutex_);
  void tell_doors() WEFT_REQUIRES(mutex_);
  // Records the first failure of a scope and broadcasts it, also to the rank that reported it.
  void declare(const Status& failure, const Scope& scope) WEFT_REQUIRES(mutex_);
  // If a deadline expires on many ranks, all of them send inquiries at once. Rank 0 queues the
  // inquiries, since the first verdict applies to the whole job and makes most of the queued
  // inquiries obsolete.
  void pass_on(Clock::time_point now) WEFT_REQUIRES(mutex_);
  void pass_letter(std::uint32_t box, Rank to, Rank from, std::string_view bytes)
      WEFT_REQUIRES(mutex_);
  void hand_over(Rank to, Rank from, std::uint32_t number, std::string_view bytes)
      WEFT_REQUIRES(mutex_);
  void beat(Clock::time_point now) WEFT_REQUIRES(mutex_);
  // Without leave(): the thread still sends queued frames. After leave(): it serves until the other
  // ranks have left or died or the timeout has expired, and then sends kGoodbye.
  bool finished(Clock::time_point now) WEFT_REQUIRES(mutex_);

  // Defined in control_gathers.cc:
  void receive_part(Rank r, std::string_view bytes, bool more, wire::Gathering what)
      WEFT_REQUIRES(mutex_);
  void hand_out() WEFT_REQUIRES(mutex_);
  // `of` is indexed by rank.
  void hand_out_in_groups(const std::vector<std::string>& named) WEFT_REQUIRES(mutex_);
  void hand_out_each(std::optional<std::vector<std::string>> of, wire::Gathering what)
      WEFT_REQUIRES(mutex_);
  // A rank's part must begin to arrive within the timeout, and then continue to arrive.
  void check_gather(Clock::time_point now) WEFT_REQUIRES(mutex_);
  void give_up_gather(const std::string& why) WEFT_REQUIRES(mutex_);

  std::deque<std::uint64_t> inquiries_ WEFT_GUARDED_BY(mutex_);  // queued
  Clock::time_point next_inquiry_ WEFT_GUARDED_BY(mutex_){};
  int doors_ WEFT_GUARDED_BY(mutex_) = 0;  // number of known doors
  const std::size_t gather_most_;          // limit on the bytes of one rank in one gather
  // By rank; [0] stands for this rank and has no channel.
  std::vector<Peer> peers_ WEFT_GUARDED_BY(mutex_);
  std::vector<Rank> order_ WEFT_GUARDED_BY(mutex_);  // ranks of the polled connections, in order
  Clock::time_point next_beat_ WEFT_GUARDED_BY(mutex_){};
  Clock::time_point stop_at_ WEFT_GUARDED_BY(mutex_) = Clock::time_point::max();
  bool gathering_ WEFT_GUARDED_BY(mutex_) = false;
  std::uint64_t current_ WEFT_GUARDED_BY(mutex_) = 0;  // number of the current or last all_gather
  Clock::time_point begun_at_ WEFT_GUARDED_BY(mutex_){}, last_part_ WEFT_GUARDED_BY(mutex_){};
};

}  // namespace weft
