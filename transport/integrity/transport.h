// The class behind make_checked_transport() (checked.h). checked.cc handles messages; notes.cc
// handles notes and retransmissions.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/integrity/checked.h"
#include "transport/messages/completions.h"
#include "transport/messages/tag_table.h"
#include "transport/offers.h"

namespace weft {

class CheckedTransport final : public Transport,
                               private Views,
                               private Staging,
                               private DeviceMemory {
 public:
  CheckedTransport(std::unique_ptr<Transport> inner, Rank me, int nranks,
                   std::function<void()> retried, int rail)
      : inner_(std::move(inner)),
        views_(inner_->views()),
        staging_(inner_->staging()),
        memory_(inner_->device_memory()),
        retried_(std::move(retried)),
        caps_(inner_->caps()),
        me_(me),
        rail_(rail),
        own_bit_(std::uint64_t{1} << (caps_.tag_bits - 1)),
        own_tags_(own_bit_ | static_cast<std::uint64_t>(rail + 1) << kNumberBits),
        peers_(static_cast<std::size_t>(nranks)) {
    caps_.tag_bits -= 1;
    caps_.checks = true;
  }
  // The inner transport must be destroyed before the memory into which it receives notes.
  ~CheckedTransport() override { inner_.reset(); }

  void post(std::span<const Transfer> transfers) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void cancel(std::uint32_t id_high) noexcept override;
  Caps caps() const override { return caps_; }
  std::optional<std::uint64_t> moved_bytes() const noexcept override {
    return inner_->moved_bytes();
  }
  Status cause(Rank peer) const override {
    if (peer >= 0 && static_cast<std::size_t>(peer) < peers_.size()) {
      const std::string& why = peers_[static_cast<std::size_t>(peer)].corrupt;
      if (!why.empty()) return {Code::kCorrupt, why, peer};
    }
    return inner_->cause(peer);
  }
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    const bool known = inner_->disputed(peer, theirs);
    theirs.crc = 0;
    return known;
  }
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override {
    inner_->forget(tag, mask | own_bit_);
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                  Head& theirs) noexcept override {
    const Rank from = inner_->unexpected(peer, tag, mask | own_bit_, theirs);
    theirs.crc = 0;
    return from;
  }
  void before_pause() noexcept override {
    acknowledge_all();
    inner_->before_pause();
  }
  bool arm(std::vector<int>& fds) noexcept override {
    acknowledge_all();
    return done_.empty() && inner_->arm(fds);
  }
  Views* views() noexcept override { return views_ ? this : nullptr; }
  Staging* staging() noexcept override { return staging_ ? this : nullptr; }
  DeviceMemory* device_memory() noexcept override { return memory_ ? this : nullptr; }

 private:
  bool release(std::uint64_t token) noexcept override;
  bool verify(std::uint64_t token, std::uint32_t crc) noexcept override;
  void* stage(std::size_t bytes) noexcept override {
    void* p = staging_->stage(bytes);
    if (p) staged_[p] = {};
    return p;
  }
  void unstage(void* staged) noexcept override {
    Staged& s = staged_[staged];
    s.ended = true;
    drop_staged(staged, s);
  }
  bool mapped(const void* data, std::size_t bytes) const noexcept override {
    return staging_->mapped(data, bytes);
  }
  // Sums are computed by the CPU.
  bool reaches_gpu(void*, std::size_t) noexcept override { return false; }
  void end_buffer(std::uint64_t serial) noexcept override { memory_->end_buffer(serial); }

  // Upper halves of the ids of notes and of retransmitted messages; each retransmission has its own
  // upper half.
  static constexpr std::uint32_t kNoteHigh = 0xfffffffe, kAgainHigh = kCheckedIds;
  static constexpr std::uint32_t kWindow = 16;  // receives posted for a peer's notes
  static constexpr int kNumberBits = 36;        // bits of the number in this layer's tags
  static constexpr std::uint64_t kNumbers = (std::uint64_t{1} << kNumberBits) - 1;
  static constexpr std::size_t kTags = 4;  // most messages that a note acknowledges

  enum class Say : std::uint32_t { kAck, kAgain };

  // One of the two equal halves of a note.
  struct Half {
    Say what = Say::kAck;
    std::uint32_t number = 0;  // kAck: number of tags; kAgain: number of the repetition of tags[0]
    std::array<std::uint64_t, kTags> tags{};
    std::uint32_t check = 0;  // crc32c of the fields above
    std::uint32_t zero = 0;
    std::uint32_t sum() const;
  };
  struct Note {
    Half half[2];
  };

  // A message in progress, from its post to its completion.
  struct Message {
    enum class Is : std::uint8_t { kFree, kSend, kRecv } is = Is::kFree;
    Transfer transfer;    // as posted by the caller
    Head head;            // the caller's head, or no head (sign 0); for kSend with the checksum
    bool failed = false;  // completed with an error
    // kSend
    int under_way = 1;  // unfinished sends of this message in the inner transport
    bool acknowledged = false;
    // kRecv
    bool by_view = false;  // a kRecv through a kView of the inner transport
    bool lent = false;     // by_reader: the caller has the view
    bool right = false;    // by_reader: verify() accepted the checksum
    bool here = false;     // `where` contains the data
    Completion where;
    int tries = 0;
  };
  struct Peer {
    bool started = false;
    std::uint64_t notes_sent = 0, notes_posted = 0;
    std::uint32_t again = 0;
    std::array<Note, kWindow> in;
    TagTable sends;                             // by tag: indices in messages_
    std::vector<std::uint64_t> to_acknowledge;  // tags of verified messages to be acknowledged
    std::string corrupt;
  };
  struct Staged {
    int sends = 0;
    bool ended = false;
  };

  // ---- checked.cc: messages
  std::uint32_t sum_of(Transfer& t);
  void unstage_copy();
  std::uint32_t take_place(Message::Is is, const Transfer& t);
  void start_send(Transfer& t);
  void start_receive(Transfer& t);
  void landed(std::uint32_t place, const Completion& c);
  void sent(std::uint32_t place, Code code);
  void end_send_if_over(std::uint32_t place);
  void end_send(std::uint32_t place);
  void end_receive(std::uint32_t place);
  void drop_place(std::uint32_t place);

  // ---- notes.cc: notes and repeated messages
  void start(Rank rank);
  void post_note_receive(Rank rank, std::uint32_t place);
  void note_ended(const Completion& c);
  void say(Rank rank, Half half);
  void acknowledge(Rank rank, std::uint64_t tag);
  void send_acknowledgements(Rank rank);
  void acknowledge_all();
  void heard(Rank rank, const Note& note, int rail);
  std::string over(int rail) const;  // "ucx, rail 1", or just "ucx"
  void ask_again(std::uint32_t place, std::uint32_t found);
  void send_again(Rank rank, std::uint64_t tag, std::uint32_t number);
  void post_again(std::uint32_t place, std::uint32_t number);

  void drop_staged(void* p, Staged& s) {
    if (!s.ended || s.sends > 0) return;
    staging_->unstage(p);
    staged_.erase(p);
  }
  Peer& peer(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  bool checks(const Transfer& t) const {
    return t.bytes > 0 && !caps_.phantom && t.peer >= 0 &&
           static_cast<std::size_t>(t.peer) < peers_.size();
  }

  std::unique_ptr<Transport> inner_;
  Views* const views_;  // this and the next two: the inner transport's interfaces
  Staging* const staging_;
  DeviceMemory* const memory_;
  std::function<void()> retried_;
  Caps caps_;
  Rank me_;
  int rail_;
  std::uint64_t own_bit_;
  // Upper bits of this layer's tags, by rail: the rails of a pair share one tag space, since each
  // rail may replace another rail. The bit below own_bit_ distinguishes retransmissions from notes.
  std::uint64_t own_tags_;
  std::vector<Peer> peers_;
  std::deque<Message> messages_;  // deque: stable addresses
  std::vector<std::uint32_t> free_places_;
  TagTable by_id_;     // indices by the caller's id
  TagTable by_token_;  // indices of lent views `by_reader`
  bool polling_ = false;
  // Peers with tags in `to_acknowledge`.
  std::vector<Rank> owing_;
  // caller's id, by the id of the repetition
  std::unordered_map<std::uint64_t, std::uint64_t> again_ids_;
  std::uint64_t next_again_id_ = 0;
  std::unordered_map<void*, Staged> staged_;
  // The last send of this batch: callers often send the same bytes to several peers.
  Transfer last_;
  void* copy_ = nullptr;  // the staged copy of last_
  std::deque<Note> out_;  // notes being sent; free_out_ has free indices
  std::vector<std::uint32_t> free_out_;
  std::vector<Transfer> batch_;
  std::array<Completion, 32> arrived_;  // completions of one poll
  Completions done_;
};

}  // namespace weft
