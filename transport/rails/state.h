// The state behind Rails (rails.h). rails.cc moves messages, receipts.cc says which have come,
// lanes.cc takes lanes out and back, notes.cc exchanges datagrams between the ends of a pair, and
// face.cc is the outside.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/messages/completions.h"
#include "transport/messages/tag_table.h"
#include "transport/rails/rails.h"

namespace weft {

// The message that Rails adds to a lane: the tags of messages that have arrived. A lane has two
// streams of receipts. Tags of short messages wait until there are many; tags of long messages wait
// for one more at most. A receive knows the length of its message, and so the stream.
struct Receipt {
  enum Stream : std::uint8_t { kShort, kLong, kStreams };
  static constexpr std::size_t kTags = 30;
  static constexpr std::size_t most(Stream stream) { return stream == kShort ? kTags : 2; }
  static constexpr std::size_t bytes(Stream stream) { return 8 + 8 * most(stream); }
  std::uint32_t count = 0;
  std::uint32_t confirmed = 0;  // receipts that came from the other end so far, modulo 2^32
  std::array<std::uint64_t, kTags> tags{};
};
static_assert(sizeof(Receipt) == Receipt::bytes(Receipt::kShort));

struct Rails::State {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr int kIndexBits = 24;        // of a slot's index in an id of an inner transport
  static constexpr int kBuckets = 32;          // of large messages, each with a rail of its own
  static constexpr std::uint32_t kWindow = 8;  // receives of receipts posted per lane and stream

  using Table = std::array<std::uint8_t, kBuckets>;  // the rail of each bucket

  // A message from its post to its receipt, or a receipt.
  struct Slot {
    enum class Use : std::uint8_t { kFree, kSend, kRecv, kReceiptOut, kReceiptIn };
    Use use = Use::kFree;
    bool busy = false;      // the inner transport has the message
    bool reported = false;  // kSend: the caller has the completion
    bool acked = false;     // kSend: the peer has the message
    bool expects = false;   // counted in `expected`
    bool timed = false;     // kSend: counted in its lane's speed
    std::int8_t rail = -1;  // -1: the message waits for a rail
    std::int8_t hold = -1;  // kSend: the message's former lane, which is severed and not yet down
    std::int8_t want = -1;  // kRecv: the rail that the sender named for this tag; -1: the table's
    std::uint8_t home = 0;
    std::uint32_t younger = kNone;  // kSend: the next one with the same tag
    std::uint16_t nonce = 0;  // rises with every inner post: tells old completions from new ones
    Receipt::Stream stream = Receipt::kShort;  // kReceiptIn
    std::uint64_t number = 0;  // of a receipt: kReceiptIn in its stream, kReceiptOut in `unsent`
    Transfer t;                // as the caller gave it; `data` may point to `copy`
    Head head;
    std::vector<std::byte> copy;
  };

  struct Lane {
    enum class Is : std::uint8_t {
      kUp,
      kSevered,  // this rank has given the lane up, the peer has not said so yet
      kDown,     // both ends have given the lane up
      kOpening,  // the lower rank has asked the peer to open the lane again
      kMet,      // the higher rank is ready, and waits for the lower rank
    };
    Is is = Is::kUp;
    std::uint32_t generation = 0;
    bool started = false;  // receives of receipts are posted
    bool moved = false;    // a message ended since the last look
    bool suspect = false;
    bool peer_severed = false;  // and `theirs` came with the peer's word
    std::uint32_t open = 0;     // messages on this lane that this rank waits for
    std::int64_t still_since = 0, down_at = 0;
    std::string cause;
    std::vector<std::uint64_t> theirs;  // tags that the peer had received when it severed

    struct Receipts {
      // Tags that came here: not yet told to the peer, and told but not confirmed.
      std::vector<std::uint64_t> untold;
      std::deque<std::vector<std::uint64_t>> told;
      std::uint32_t told_from = 0, told_to = 0;  // numbers of the receipts in `told`
      // Receipts of the peer.
      std::uint32_t heard_all_below = 0, posted_below = 0, confirmed = 0;
      std::uint64_t heard = 0;       // bit i: number heard_all_below + i
      bool owes = false;             // the peer keeps tags until this rank confirms their receipts
      std::int64_t waits_since = 0;  // to tell or to confirm something; 0: nothing waits
    };
    std::array<Receipts, Receipt::kStreams> receipts;
    bool urgent = false;             // the peer waits for the untold tag of a long message
    bool held = false;               // that tag waits for another one to go with it
    int patience = 0;                // negative: so many tags are not held
    std::uint32_t coming = 0;        // posted long receives
    std::int64_t came = 0, gap = 0;  // when one ended (0: none is posted); us between two
    // Calls f(tag) for each tag that came here and that the peer may not know of.
    template <class F>
    void for_each_kept(F f) const {
      for (const Receipts& stream : receipts) {
        for (const std::uint64_t tag : stream.untold) f(tag);
        for (const auto& some : stream.told)
          for (const std::uint64_t tag : some) f(tag);
      }
    }

    // The time that large messages take: `open_large` of them are under way since `busy_since`.
    std::uint32_t open_large = 0;
    std::int64_t busy_since = 0, busy_us = 0;
    std::uint64_t bytes = 0;
    // Two measures of the lane's speed. A mean of rates mistakes messages that come late, all at
    // once, for speed: on a busy machine equal rails then seem to differ. Bytes over time do not,
    // but charge a fast rail with its waits for a slow one. So bytes over time say whether rails
    // differ, and the mean rate says by how much.
    double all_bytes = 0, all_us = 0;  // of the last measurements
    double rate = 0;                   // bytes per us, smoothed; 0: not known
  };

  struct Path {
    std::int64_t asked_since = 0;  // when the oldest unanswered ping was sent; 0: there is none
    int streak = 0;
    // Pings since then that were answered on other paths, and the time of the first such answer.
    int missed = 0;
    std::int64_t missed_since = 0;
  };

  struct Note {
    std::uint32_t number;
    bool move;
    std::string body;
  };

  struct Peer {
    std::vector<Lane> lanes;
    std::vector<Path> paths;
    TagTable sends;  // slot by tag: the oldest one, where a sender is so far ahead that tags repeat
    std::vector<Table> out, in;                                                 // by home
    std::unordered_map<std::uint64_t, std::uint8_t> elsewhere, elsewhere_next;  // receives
    std::uint64_t large = 0;  // large messages sent so far
    std::int64_t pinged = 0;
    int deaf = 0;          // pings since the peer's last answer
    bool reached = false;  // the peer has answered a datagram, ever
    bool lively = false;   // a message came from the peer since the last ping
    int unanswered = 0;    // pings to the peer while lively and not reached; when the last one was
    std::int64_t counted = 0;
    bool active = false;         // in State::active
    bool asked_to_move = false;  // a ping is out whose answer lets large messages move
    bool unheard = false;        // the peer broke the protocol: its datagrams are dropped
    std::deque<Note> notes;
    int moves_out = 0;          // moves among the notes
    bool spread_again = false;  // once no move is among the notes
    std::uint32_t next_note = 0, next_heard = 0;
    std::int64_t noted = 0;  // when the first note was last sent
  };

  State(std::vector<std::unique_ptr<Transport>> inner_in, std::unique_ptr<DatagramChannel> paths_in,
        Rank me, int nranks, const RailsOptions& options_in);
  // The inner transports end before the memory that they receive into: a receipt may still come.
  ~State() { inner.clear(); }

  // ---- rails.cc: messages
  void post(int home, std::span<const Transfer> transfers) noexcept;
  std::size_t poll(int face, std::span<Completion> out) noexcept;
  void progress() noexcept;
  void take_out_failed();
  void cancel(std::uint32_t id_high) noexcept;
  std::uint32_t take(Slot::Use use);
  void add_slot();
  void free(std::uint32_t s);
  void place(std::uint32_t s, int rail);
  void place_waiting(Rank rank);
  void keep_send(Peer& p, std::uint32_t s);
  void forget_send(std::uint32_t s);
  // Calls f(slot) for the messages with the tag of `oldest`, by age. f may not end any of them.
  template <class F>
  void for_each_send(std::uint32_t oldest, F f) {
    for (; oldest != kNone; oldest = slots[oldest]->younger) f(oldest);
  }
  void flush_posts();
  void unplace(Slot& slot);
  void expect_no_more(Slot& slot) {
    if (std::exchange(slot.expects, false)) --expected[static_cast<std::size_t>(slot.rail)];
  }
  // The id of a slot's message in its inner transport. The upper half alone, by which messages are
  // cancelled, tells those apart that are there at one time; the lower half tells all apart.
  std::uint64_t inner_id(std::uint32_t s) const {
    const std::uint16_t nonce = slots[s]->nonce;
    return std::uint64_t{s | std::uint32_t{nonce} << kIndexBits} << 32 | nonce;
  }
  void cancel_inner(std::uint32_t s) {
    inner[static_cast<std::size_t>(slots[s]->rail)]->cancel(
        static_cast<std::uint32_t>(inner_id(s) >> 32));
  }
  void handle(int rail, const Completion& c);
  void complete(const Slot& slot, Code code, std::uint32_t crc = 0) {
    faces[slot.home].add({.id = slot.t.id, .code = code, .rail = slot.rail, .crc = crc});
  }
  bool copied(const Transfer& t) const { return t.bytes <= options.copied_bytes && !t.on_device; }
  bool large(const Transfer& t) const { return t.bytes > options.spread_bytes; }
  // Returns the bucket of a message; the first is the rail's own. Both ends must compute the same. This function spreads evenly
  // the neighbours among tags that count in their low bits, or in the bits from the 14th on.
  int bucket(const Transfer& t) const {
    return large(t) && !t.own_rail ? static_cast<int>((t.tag * 5 + (t.tag >> 14)) % kBuckets) : 0;
  }
  int out_rail(const Peer& p, const Slot& slot) const {
    return p.out[slot.home][static_cast<std::size_t>(bucket(slot.t))];
  }
  int in_rail(Peer& p, Slot& slot);

  // ---- rails/receipts.cc: receipts
  void start(Rank rank, int rail);
  std::uint64_t receipt_tag(Receipt::Stream stream, std::uint32_t number) const;
  void post_receipt_receive(Rank rank, int rail, Receipt::Stream stream);
  void receipt_came(const Slot& slot);
  void send_receipt(Rank rank, int rail, Receipt::Stream stream);
  void long_one_came(Rank rank, int rail, std::size_t bytes);
  bool hold_receipt(Rank rank, int rail);
  void send_urgent_receipts(bool all);
  void send_late_receipts(Rank rank, int rail, std::int64_t now);
  void acknowledged(Rank rank, std::uint64_t tag);
  void report(Slot& slot);
  void finish_send(std::uint32_t s);

  // ---- rails/lanes.cc: lanes
  void look();
  void watch(Rank rank, std::int64_t now);
  // Looks at the peer's lanes from now on, until nothing is under way with it.
  void stir(Rank rank, Peer& p) {
    if (!p.active) [[unlikely]] {
      p.active = true;
      active.push_back(rank);
    }
  }
  static bool at_rest(const Peer& p);
  void take_out(Rank rank, int rail, const std::string& cause);
  void settle_lane(Rank rank, int rail);
  void taken_back(Rank rank, int rail);
  void fresh(Lane& lane);
  void try_open(Rank rank, int rail, std::int64_t now);
  // Why spread() computes anew which rails messages take.
  enum class Why {
    kRates,     // rates may have changed: spread() first asks the peer whether datagrams reach it
    kAnswered,  // the peer has answered that question
    kLanes,     // a lane went or came: spread() asks nothing
  };
  void spread(Rank rank, Why why);
  Table table_for(const Peer& p, Rank rank, int home) const;
  void timed(Lane& lane, std::size_t bytes, bool begins);
  std::vector<int> stripes(Rank rank, int home) const;
  bool others_up(const Peer& p, int rail) const;

  // ---- rails/notes.cc: datagrams
  void ping(Rank rank, std::int64_t now);
  void answered(Rank rank, std::size_t rail, std::int64_t sent);
  bool silent(Rank rank, int rail, std::int64_t now);
  void introduce(Rank rank, std::int64_t now);
  void say(Rank rank, std::string body, bool move = false);
  void send_note(Rank rank, std::int64_t now);
  void hear(const Datagram& d);
  void hear_note(Rank rank, std::string_view body);
  void stop_hearing(Rank rank, const char* what);
  void say_down(Rank rank, int rail);
  void say_move(Rank rank);
  void hear_move(Rank rank, std::string_view body, bool last);
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
  std::vector<Rank> active;                  // those with something under way
  std::vector<std::unique_ptr<Slot>> slots;
  std::vector<std::uint32_t> free_slots;
  std::vector<Completions> faces;            // by rail
  std::vector<std::uint8_t> used;            // rails that are polled
  std::vector<std::uint32_t> expected;       // by rail: completions and receipts that come soon
  std::vector<std::vector<Transfer>> batch;  // by rail
  std::vector<std::pair<Rank, int>> urgent;  // lanes with urgent receipts
  struct Failed {
    Rank rank;
    int rail;
    std::uint32_t generation;
    std::string cause;
  };
  std::vector<Failed> failed;  // lanes whose transport reported an error
  bool attention = false;      // the next poll looks at the lanes
  bool warned = false;         // the log says that datagrams do not pass
  bool full = false;           // a message was refused: see RailsOptions::most_messages
  int idle = 0;                // polls without a completion since the last look
  std::uint64_t polls = 0;
  int last_polled = 0;                // the face that was polled last
  std::array<Completion, 32> polled;  // by one progress()
  std::int64_t looked = 0, heard = 0;
  std::size_t retained = 0;           // sends without a receipt
  std::vector<std::uint64_t> unsent;  // receipts that inner transports have, by counters.receipts
  RailsCounters counters;
  std::vector<std::atomic<std::uint64_t>> sent_bytes;  // by rail
  std::function<void(const RailEvent&)> on_event;
};

}  // namespace weft
