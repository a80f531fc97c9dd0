// The class behind make_checked_transport (checked.h). checked.cc handles messages; notes.cc has
// notes and repeated messages.
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
#include "transport/transport.h"

namespace weft {

class CheckedTransport final : public Transport {
 public:
  CheckedTransport(std::unique_ptr<Transport> inner, Rank me, int nranks,
                   std::function<void()> retried, int rail)
      : inner_(std::move(inner)),
        retried_(std::move(retried)),
        caps_(inner_->caps()),
        me_(me),
        rail_(rail),
        own_bit_(std::uint64_t{1} << (caps_.tag_bits - 1)),
        peers_(static_cast<std::size_t>(nranks)) {
    caps_.tag_bits -= 1;
    caps_.checks = true;
  }
  // The inner transport ends before the memory into which it receives notes.
  ~CheckedTransport() override { inner_.reset(); }

  void post(std::span<const Transfer> transfers) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  bool release(std::uint64_t token) noexcept override;
  bool verify(std::uint64_t token, std::uint32_t crc) noexcept override;
  void cancel(std::uint32_t id_high) noexcept override;
  void* stage(std::size_t bytes) noexcept override {
    void* p = inner_->stage(bytes);
    if (p) staged_[p] = {};
    return p;
  }
  void unstage(void* staged) noexcept override {
    Staged& s = staged_[staged];
    s.ended = true;
    drop_staged(staged, s);
  }
  bool mapped(const void* data, std::size_t bytes) const noexcept override {
    return inner_->mapped(data, bytes);
  }
  Caps caps() const override { return caps_; }
  Status cause(Rank peer) const override {
    if (peer >= 0 && static_cast<std::size_t>(peer) < peers_.size()) {
      const std::string& why = peers_[static_cast<std::size_t>(peer)].corrupt;
      if (!why.empty()) return {Code::kCorrupt, why, peer};
    }
    return inner_->cause(peer);
  }
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    return inner_->disputed(peer, theirs);
  }
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override {
    inner_->forget(tag, mask | own_bit_);
    inner_->forget(tag | own_bit_, mask | own_bit_);
    for (Peer& p : peers_)
      std::erase_if(p.crcs, [=](const auto& told) { return (told.first & mask) == tag; });
  }
  Rank unclaimed(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept override {
    return inner_->unclaimed(peer, tag, mask | own_bit_, theirs);
  }
  void leave() noexcept override { inner_->leave(); }
  bool arm(std::vector<int>& fds) noexcept override {
    return handed_ == done_.size() && inner_->arm(fds);
  }

 private:
  // Upper halves of the ids of notes and of repeated messages; each repetition has one of its own.
  static constexpr std::uint32_t kNoteHigh = 0xfffffffe, kAgainHigh = kCheckedIds;
  static constexpr std::uint32_t kWindow = 16;  // receives posted for a peer's notes

  enum class Say : std::uint32_t { kCrc, kAck, kAgain };

  // One of two equal halves of a note.
  struct Half {
    std::uint32_t tag_low, tag_high;
    std::uint32_t what;   // Say, 2 bits; number of the repetition above
    std::uint32_t crc;    // kCrc: the sum of the message
    std::uint32_t check;  // crc32c of the fields above
    std::uint32_t sum() const;
  };
  struct Note {
    Half half[2];
  };
  static_assert(sizeof(Note) == 40);  // fits into a cell of shared memory

  struct Send {
    Transfer transfer;
    int under_way = 1;  // sends of this message in the inner transport
    bool acknowledged = false;
  };
  struct Recv {
    Transfer transfer;
    bool by_view = false;  // a kRecv done by a kView of the inner transport
    bool landed = false;
    Completion where;
    std::uint32_t told = 0;  // by_reader: the sender's sum
    bool lent = false;       // by_reader: the caller has the view
    bool right = false;      // by_reader: verify() accepted the sum
    int tries = 0;
  };
  struct Peer {
    bool started = false;
    std::uint64_t notes_sent = 0, notes_posted = 0;
    std::uint32_t again = 0;
    std::array<Note, kWindow> in;
    std::unordered_map<std::uint64_t, std::uint32_t> crcs;          // by tag: sums before messages
    std::unordered_map<std::uint64_t, std::uint64_t> sends, recvs;  // id by tag
    std::string corrupt;
  };
  struct Staged {
    int sends = 0;
    bool ended = false;
  };

  // ---- checked.cc: messages
  std::uint32_t sum_of(Transfer& t);
  void unstage_copy();
  void landed(std::uint64_t id, const Completion& c);
  void check(std::uint64_t id, std::uint32_t crc);
  void sent(std::uint64_t id, Code code);
  void end_send_if_over(std::uint64_t id);

  // ---- notes.cc: notes, and messages that are sent again
  void start(Rank rank);
  void post_note_receive(Rank rank, std::uint32_t place);
  void note_ended(const Completion& c);
  void say(Rank rank, Say what, std::uint64_t tag, std::uint32_t crc, std::uint32_t number = 0);
  void heard(Rank rank, const Note& note, int rail);
  std::string over(int rail) const;  // "ucx, rail 1", or less where the rail is unknown
  void ask_again(std::uint64_t id, std::uint32_t crc, std::uint32_t found);
  void send_again(Rank rank, std::uint64_t tag, std::uint32_t number);
  void post_again(Transfer t, std::uint64_t id, std::uint32_t number);

  void complete(const Completion& c) { done_.push_back(c); }
  void drop_staged(void* p, Staged& s) {
    if (!s.ended || s.sends > 0) return;
    inner_->unstage(p);
    staged_.erase(p);
  }
  void forget_send(std::uint64_t id) {
    const auto it = sends_.find(id);
    if (const auto s = staged_.find(it->second.transfer.data); s != staged_.end()) {
      --s->second.sends;
      drop_staged(it->second.transfer.data, s->second);
    }
    peer(it->second.transfer.peer).sends.erase(it->second.transfer.tag);
    sends_.erase(it);
  }
  void forget_recv(std::uint64_t id) {
    const auto it = recvs_.find(id);
    if (const auto r = read_.find(it->second.where.token); r != read_.end() && r->second == id)
      read_.erase(r);
    peer(it->second.transfer.peer).recvs.erase(it->second.transfer.tag);
    recvs_.erase(it);
  }
  Peer& peer(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  bool checks(const Transfer& t) const {
    return t.bytes > 0 && !caps_.phantom && t.peer >= 0 &&
           static_cast<std::size_t>(t.peer) < peers_.size();
  }

  std::unique_ptr<Transport> inner_;
  std::function<void()> retried_;
  Caps caps_;
  Rank me_;
  int rail_;
  std::uint64_t own_bit_;
  std::vector<Peer> peers_;
  std::unordered_map<std::uint64_t, Send> sends_;  // by the caller's id
  std::unordered_map<std::uint64_t, Recv> recvs_;
  std::unordered_map<std::uint64_t, std::uint64_t> again_ids_;  // caller's id by repetition's
  std::uint64_t next_again_id_ = 0;
  std::unordered_map<void*, Staged> staged_;
  std::unordered_map<std::uint64_t, std::uint64_t> read_;  // ids of views by_reader, by token
  // The last send of this batch: callers often send the same bytes to several peers.
  Transfer last_;
  void* copy_ = nullptr;  // the staged copy of last_
  std::deque<Note> out_;  // notes under way; free_out_ lists places to reuse
  std::vector<std::uint32_t> free_out_;
  std::vector<Transfer> batch_;
  std::vector<Completion> done_;
  std::size_t handed_ = 0;
};

}  // namespace weft
