// The state behind Rails (rails.h). rails.cc posts messages, receipts.cc acknowledges them,
// lanes.cc takes lanes out of use and back, notes.cc writes and reads the notes between the ends of
// a pair, and face.cc has the transports of users. Parts without a transport: messages.h, lane.h,
// receipts.h, peer_talk.h, routes.h.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/messages/completions.h"
#include "transport/messages/tag_table.h"
#include "transport/offers.h"
#include "transport/rails/lane.h"
#include "transport/rails/messages.h"
#include "transport/rails/peer_talk.h"
#include "transport/rails/rail_table.h"
#include "transport/rails/rails.h"
#include "transport/rails/routes.h"

namespace weft {

struct Rails::State final : private PeerTalk::Listener {
  using Slot = RailSlot;
  using Lane = RailLane;

  struct Peer {
    std::vector<Lane> lanes;
    TagTable sends;  // slot by tag: the oldest, if a sender is so far ahead that tags repeat
    RailRoutes routes;
    std::uint64_t large = 0;  // large messages sent so far
    PeerTalk talk;
    bool active = false;         // in State::active
    bool asked_to_move = false;  // the answer to a pending ping lets large messages move
    bool spread_again = false;   // call spread() when no move is among the notes

    Peer(DatagramChannel& paths, Rank rank, std::size_t rails)
        : lanes(rails), talk(paths, rank, rails) {}
  };

  State(std::vector<std::unique_ptr<Transport>> inner_in, std::unique_ptr<DatagramChannel> paths_in,
        Rank me, int nranks, const RailsOptions& options_in);
  // The inner transports end before the memory that they receive into: a receipt may still arrive.
  ~State() { inner.clear(); }

  // ---- rails.cc: messages
  void post(int home, std::span<const Transfer> transfers) noexcept;
  std::size_t poll(int face, std::span<Completion> out) noexcept;
  void progress() noexcept;
  void take_out_failed();
  void cancel(std::uint32_t id_high) noexcept;
  void place(std::uint32_t s, int rail);
  void place_waiting(Rank rank);
  void flush_posts();
  void unplace(Slot& slot);
  void expect_no_more(Slot& slot) {
    if (std::exchange(slot.expects, false)) --expected[static_cast<std::size_t>(slot.rail)];
  }
  void cancel_inner(std::uint32_t s) {
    inner[static_cast<std::size_t>(slots[s].rail)]->cancel(
        static_cast<std::uint32_t>(slots.inner_id(s) >> 32));
  }
  void handle(int rail, const Completion& c);
  void complete(const Slot& slot, Code code, std::uint32_t crc = 0) {
    faces[slot.home].add({.id = slot.t.id, .code = code, .rail = slot.rail, .crc = crc});
  }
  bool copied(const Transfer& t) const { return t.bytes <= options.copied_bytes && !t.on_device; }
  bool large(const Transfer& t) const { return t.bytes > options.spread_bytes; }
  // Returns the bucket of a message; the first is the rail's own. Both ends must compute the same.
  // Spreads consecutive tags evenly, whether they count in their low bits or from bit 14 on.
  int bucket(const Transfer& t) const {
    return large(t) && !t.own_rail ? static_cast<int>((t.tag * 5 + (t.tag >> 14)) % kRailBuckets)
                                   : 0;
  }
  int out_rail(const Peer& p, const Slot& slot) const {
    return p.routes.out(slot.home, bucket(slot.t));
  }
  int in_rail(Peer& p, Slot& slot);

  // ---- rails/receipts.cc: receipts
  void start(Rank rank, int rail);
  std::uint64_t receipt_tag(Receipt::Stream stream, std::uint32_t number) const;
  void post_receipt_receive(Rank rank, int rail, Receipt::Stream stream);
  void receipt_came(const Slot& slot);
  void send_receipt(Rank rank, int rail, Receipt::Stream stream);
  void long_one_came(Rank rank, int rail, std::size_t bytes);
  void send_urgent_receipts(bool all);
  void send_late_receipts(Rank rank, int rail, std::int64_t now);
  void acknowledged(Rank rank, std::uint64_t tag);
  void report(Slot& slot);
  void finish_send(std::uint32_t s);

  // ---- rails/lanes.cc: lanes
  void look();
  void watch(Rank rank, std::int64_t now);
  // Adds the peer to those that look() checks, until nothing is under way with it.
  void activate(Rank rank, Peer& p) {
    if (!p.active) [[unlikely]] {
      p.active = true;
      active.push_back(rank);
    }
  }
  static bool at_rest(const Peer& p);
  void take_out(Rank rank, int rail, const std::string& cause);
  void settle_lane(Rank rank, int rail);
  void taken_back(Rank rank, int rail);
  void try_open(Rank rank, int rail, std::int64_t now);
  // Why spread() recomputes the rails of messages.
  enum class Why {
    kRates,     // rates may have changed: spread() first pings the peer
    kAnswered,  // the peer has answered that ping
    kLanes,     // a lane was taken out or back: no ping first
  };
  void spread(Rank rank, Why why);
  RailTable table_for(const Peer& p, Rank rank, int home) const;
  std::vector<int> stripes(Rank rank, int home) const;

  // ---- rails/notes.cc: datagrams
  void ping(Rank rank, std::int64_t now);
  bool silent(Rank rank, int rail, std::int64_t now);
  void introduce(Rank rank, std::int64_t now);
  void say(Rank rank, std::string body, bool move = false);
  void on_answer(Rank rank, bool again) override;
  void on_note(Rank rank, std::string_view body) override;
  void on_told(Rank rank) override;
  void mute(Rank rank, const char* what);
  void say_down(Rank rank, int rail);
  void say_move(Rank rank);
  void read_move(Rank rank, std::string_view body, bool last);
  void say_lane(Rank rank, char kind, int rail, std::string_view text = {});

  Peer& peer(Rank rank) {
    Peer* const known_one = peers[static_cast<std::size_t>(rank)].get();
    return known_one ? *known_one : make_peer(rank);
  }
  Peer& make_peer(Rank rank);
  Lane& lane(Rank rank, int rail) { return peer(rank).lanes[static_cast<std::size_t>(rail)]; }
  int nrails() const { return static_cast<int>(inner.size()); }

  std::vector<std::unique_ptr<Transport>> inner;
  std::unique_ptr<DatagramChannel> paths;
  Rank me;
  RailsOptions options;
  Caps caps;
  std::uint64_t own_bit;
  std::vector<std::unique_ptr<Peer>> peers;  // by rank; null: no message with this rank so far
  std::vector<Rank> known;                   // the ranks whose peer is not null
  std::vector<Rank> active;                  // peers that look() checks
  RailMessages slots;
  std::vector<Completions> faces;            // by rail
  std::vector<std::uint8_t> used;            // rails that are polled
  std::vector<std::uint32_t> expected;       // by rail: completions and receipts expected soon
  std::vector<std::vector<Transfer>> batch;  // by rail
  std::vector<std::pair<Rank, int>> urgent;  // lanes with urgent receipts
  struct Failed {
    Rank rank;
    int rail;
    std::uint32_t generation;
    std::string cause;
  };
  std::vector<Failed> failed;  // lanes whose transport reported an error
  bool attention = false;      // the next poll checks the lanes
  bool warned = false;         // the log says that datagrams do not pass
  bool full = false;           // a message was refused: see RailsOptions::most_messages
  int idle = 0;                // polls without a completion since the last look
  std::uint64_t polls = 0;
  int last_polled = 0;                   // the face that was polled last
  std::array<Completion, 32> polled;     // by one progress()
  std::int64_t looked = 0, read_at = 0;  // lanes, datagrams
  std::vector<std::uint64_t> unsent;  // receipts that inner transports have, by counters.receipts
  RailsCounters counters;
  std::vector<std::atomic<std::uint64_t>> sent_bytes;  // by rail
  std::function<void(const RailEvent&)> on_event;
};

}  // namespace weft
