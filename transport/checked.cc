#include "transport/checked.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <utility>

#include "topo/log.h"
#include "transport/crc32c.h"

namespace weft {
namespace {

// Upper halves of ids that no caller uses: notes, and messages sent again (one each).
constexpr std::uint32_t kNoteHigh = 0xfffffffe, kAgainHigh = 0xffff0000;
constexpr std::uint64_t kAgainMask = 0x7fff;
constexpr std::uint32_t kWindow = 16;  // receives of notes posted per peer
constexpr std::size_t kWorthStaging = 1024;  // of shorter ones two passes cost nothing

enum class Say : std::uint32_t { kCrc, kAck, kAgain };

// One of two equal halves of a note.
struct Half {
  std::uint32_t tag_low, tag_high;
  std::uint32_t what;   // Say, 2 bits; number of the repetition above
  std::uint32_t crc;    // kCrc: of the message
  std::uint32_t check;  // crc32c of the fields before
};
struct Note {
  Half half[2];
};
static_assert(sizeof(Note) == 40);  // goes inside a cell of shared memory

std::uint32_t check_of(const Half& h) { return crc32c(&h, offsetof(Half, check)); }

class Checked final : public Transport {
 public:
  Checked(std::unique_ptr<Transport> inner, Rank me, int nranks, std::function<void()> retried)
      : inner_(std::move(inner)),
        retried_(std::move(retried)),
        caps_(inner_->caps()),
        me_(me),
        own_bit_(std::uint64_t{1} << (caps_.tag_bits - 1)),
        peers_(static_cast<std::size_t>(nranks)) {
    caps_.tag_bits -= 1;
    caps_.checks = true;
  }
  // What is below ends before the memory that it receives notes into.
  ~Checked() override { inner_.reset(); }

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
  }
  Rank unclaimed(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept override {
    return inner_->unclaimed(peer, tag, mask | own_bit_, theirs);
  }
  bool arm(std::vector<int>& fds) noexcept override {
    return handed_ == done_.size() && inner_->arm(fds);
  }

 private:
  struct Send {
    Transfer transfer;
    int under_way = 1;  // of the transports below
    bool acknowledged = false;
  };
  struct Recv {
    Transfer transfer;
    bool by_view = false;  // a kRecv that goes through a view
    bool landed = false;
    Completion where;
    std::uint32_t told = 0;  // by_reader: the sender's sum
    bool lent = false;       // by_reader: the caller has it
    bool right = false;      // by_reader: verify() found it so
    int tries = 0;
  };
  struct Peer {
    bool started = false;
    std::uint64_t notes_sent = 0, notes_posted = 0;
    std::uint32_t again = 0;
    std::array<Note, kWindow> in;
    std::unordered_map<std::uint64_t, std::uint32_t> crcs;  // by tag: told, the message is not here
    std::unordered_map<std::uint64_t, std::uint64_t> sends, recvs;  // id by tag
    std::string corrupt;
  };
  struct Staged {
    int sends = 0;
    bool ended = false;
  };

  void start(Rank rank);
  void post_note_receive(Rank rank, std::uint32_t place);
  void say(Rank rank, Say what, std::uint64_t tag, std::uint32_t crc, std::uint32_t number = 0);
  void heard(Rank rank, const Note& note);
  void send_again(Rank rank, std::uint64_t tag, std::uint32_t number);
  void landed(std::uint64_t id, const Completion& c);
  void check(std::uint64_t id, std::uint32_t crc);
  void ask_again(std::uint64_t id, std::uint32_t crc, std::uint32_t found);
  std::uint32_t sum_of(Transfer& t);
  void unstage_copy();
  void sent(std::uint64_t id, Code code);
  void end_send_if_over(std::uint64_t id);
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
  std::uint64_t own_bit_;
  std::vector<Peer> peers_;
  std::unordered_map<std::uint64_t, Send> sends_;  // by the caller's id
  std::unordered_map<std::uint64_t, Recv> recvs_;
  std::unordered_map<std::uint64_t, std::uint64_t> again_ids_;  // the caller's id, by ours
  std::uint64_t next_again_id_ = 0;
  std::unordered_map<void*, Staged> staged_;
  std::unordered_map<std::uint64_t, std::uint64_t> read_;  // ids of views by_reader, by token
  // The last message of this batch: the same bytes often go to several peers.
  Transfer last_;
  void* copy_ = nullptr;  // where it was staged
  std::deque<Note> out_;  // notes under way; places are used again
  std::vector<std::uint32_t> free_out_;
  std::vector<Transfer> batch_;
  std::vector<Completion> done_;
  std::size_t handed_ = 0;
};

// ---- notes ---------------------------------------------------------------------------------

// Tags of our own: the highest bit; the next one tells repeated messages from notes.
void Checked::post_note_receive(Rank rank, std::uint32_t place) {
  Peer& p = peer(rank);
  Transfer t;
  t.kind = Transfer::Kind::kRecv;
  t.peer = rank;
  t.tag = own_bit_ | (p.notes_posted & (own_bit_ / 2 - 1));
  t.data = &p.in[place];
  t.bytes = sizeof(Note);
  t.id = static_cast<std::uint64_t>(kNoteHigh) << 32 | 1u << 31 |
         static_cast<std::uint64_t>(rank) * kWindow | place;
  ++p.notes_posted;
  inner_->post({&t, 1});
}

void Checked::start(Rank rank) {
  Peer& p = peer(rank);
  if (std::exchange(p.started, true)) return;
  for (std::uint32_t i = 0; i < kWindow; ++i) post_note_receive(rank, i);
}

void Checked::say(Rank rank, Say what, std::uint64_t tag, std::uint32_t crc, std::uint32_t number) {
  std::uint32_t place = static_cast<std::uint32_t>(out_.size());
  if (free_out_.empty()) {
    out_.emplace_back();
  } else {
    place = free_out_.back();
    free_out_.pop_back();
  }
  Half h{static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(tag >> 32),
         static_cast<std::uint32_t>(what) | number << 2, crc, 0};
  h.check = check_of(h);
  out_[place] = {{h, h}};
  Transfer t;
  t.peer = rank;
  t.tag = own_bit_ | (peer(rank).notes_sent++ & (own_bit_ / 2 - 1));
  t.data = &out_[place];
  t.bytes = sizeof(Note);
  t.id = static_cast<std::uint64_t>(kNoteHigh) << 32 | place;
  inner_->post({&t, 1});
}

void Checked::heard(Rank rank, const Note& note) {
  const Half* good = nullptr;
  for (const Half& h : note.half)
    if (check_of(h) == h.check) good = &h;
  Peer& p = peer(rank);
  if (!good) {  // both halves: whatever it was about cannot be repaired
    p.corrupt = fmt::format("rank {} to rank {} over {}: a note about a message arrived changed",
                            rank, me_, caps_.name);
    for (const auto& [tag, id] : p.recvs)
      if (!recvs_[id].lent) complete({.id = id, .code = Code::kCorrupt});
    for (const auto& [tag, id] : p.sends) complete({.id = id, .code = Code::kCorrupt});
    return;
  }
  const std::uint64_t tag = static_cast<std::uint64_t>(good->tag_high) << 32 | good->tag_low;
  switch (static_cast<Say>(good->what & 3)) {
    case Say::kCrc: {
      const auto it = p.recvs.find(tag);
      if (it != p.recvs.end() && recvs_[it->second].landed) return check(it->second, good->crc);
      p.crcs[tag] = good->crc;
      return;
    }
    case Say::kAck: {
      const auto it = p.sends.find(tag);
      if (it == p.sends.end()) return;  // given up
      const std::uint64_t id = it->second;
      sends_[id].acknowledged = true;
      return end_send_if_over(id);
    }
    case Say::kAgain:
      return send_again(rank, tag, good->what >> 2);
  }
}

void Checked::send_again(Rank rank, std::uint64_t tag, std::uint32_t number) {
  const auto it = peer(rank).sends.find(tag);
  if (it == peer(rank).sends.end()) return;
  Send& s = sends_[it->second];
  Transfer t = s.transfer;
  t.head = nullptr;
  t.tag = own_bit_ | own_bit_ / 2 | number;
  t.id = static_cast<std::uint64_t>(kAgainHigh | (next_again_id_++ & kAgainMask)) << 32;
  again_ids_[t.id] = it->second;
  ++s.under_way;
  inner_->post({&t, 1});
}

// ---- messages ------------------------------------------------------------------------------

// The sum of a message to send. Where the transport below would copy it, that is done here, in the
// same pass.
std::uint32_t Checked::sum_of(Transfer& t) {
  if (t.summed) return t.crc;
  const bool same = t.data == last_.data && t.bytes == last_.bytes;
  const bool copied = (t.buffered || !inner_->mapped(t.data, t.bytes)) && !staged_.contains(t.data);
  if (!same) {
    unstage_copy();
    last_ = t;
    if (copied && t.bytes >= kWorthStaging && t.bytes <= caps_.max_view)
      copy_ = inner_->stage(t.bytes);
    last_.crc = copy_ ? copy_crc32c(copy_, t.data, t.bytes, false) : crc32c(t.data, t.bytes);
  }
  if (copied && copy_) t.data = copy_;
  return last_.crc;
}

void Checked::unstage_copy() {
  last_ = {};
  if (!copy_) return;
  inner_->post(batch_);  // what was staged is sent first
  batch_.clear();
  inner_->unstage(std::exchange(copy_, nullptr));
}

void Checked::post(std::span<const Transfer> transfers) noexcept {
  batch_.clear();
  for (Transfer t : transfers) {
    if (checks(t)) {
      start(t.peer);
      Peer& p = peer(t.peer);
      if (t.kind == Transfer::Kind::kSend) {
        sends_[t.id] = {.transfer = t};
        p.sends[t.tag] = t.id;
        if (const auto s = staged_.find(t.data); s != staged_.end()) ++s->second.sends;
        const std::uint32_t crc = sum_of(t);
        say(t.peer, Say::kCrc, t.tag, crc);
      } else {
        Recv& r = recvs_[t.id];
        r = Recv{};
        r.transfer = t;
        p.recvs[t.tag] = t.id;
        // Checked where the bytes are lent, and copied from there while they are in cache.
        if (t.kind == Transfer::Kind::kRecv && caps_.views && t.bytes <= caps_.max_view) {
          r.by_view = true;
          t.kind = Transfer::Kind::kView;
          t.data = nullptr;
        }
      }
    }
    batch_.push_back(t);
  }
  inner_->post(batch_);
  batch_.clear();
  unstage_copy();
}

void Checked::landed(std::uint64_t id, const Completion& c) {
  Recv& r = recvs_[id];
  if (c.code != Code::kOk) {
    complete({.id = id, .code = c.code});
    return forget_recv(id);
  }
  r.landed = true;
  r.where = c;
  Peer& p = peer(r.transfer.peer);
  const auto it = p.crcs.find(r.transfer.tag);
  if (it == p.crcs.end()) return;
  const std::uint32_t crc = it->second;
  p.crcs.erase(it);
  check(id, crc);
}

void Checked::check(std::uint64_t id, std::uint32_t crc) {
  Recv& r = recvs_[id];
  const Transfer& t = r.transfer;
  Completion c{.id = id, .code = Code::kOk, .view = r.where.view, .token = r.where.token};
  if (t.by_reader) {  // who says in verify() whether it is right
    if (std::exchange(r.lent, true)) return;
    r.told = crc;
    read_[c.token] = id;
    return complete(c);
  }
  const std::uint32_t found = r.by_view
                                  ? copy_crc32c(t.data, r.where.view, t.bytes, t.streaming)
                                  : crc32c(c.view ? c.view : t.data, t.bytes);
  if (found != crc) [[unlikely]]
    return ask_again(id, crc, found);
  if (r.by_view) {
    inner_->release(c.token);
    c.view = nullptr;
    c.token = 0;
  }
  say(t.peer, Say::kAck, t.tag, 0);
  complete(c);
  forget_recv(id);
}

bool Checked::verify(std::uint64_t token, std::uint32_t crc) noexcept {
  const auto it = read_.find(token);
  if (it == read_.end()) return true;
  Recv& r = recvs_[it->second];
  if (crc == r.told) [[likely]] {
    r.right = true;
    return true;
  }
  const std::uint64_t id = it->second;
  read_.erase(it);
  ask_again(id, r.told, crc);
  return false;
}

bool Checked::release(std::uint64_t token) noexcept {
  if (const auto it = read_.find(token); it != read_.end()) {
    const Recv& r = recvs_[it->second];
    if (r.right) say(r.transfer.peer, Say::kAck, r.transfer.tag, 0);
    forget_recv(it->second);
  }
  return inner_->release(token);
}

void Checked::ask_again(std::uint64_t id, std::uint32_t crc, std::uint32_t found) {
  Recv& r = recvs_[id];
  const Transfer& t = r.transfer;
  Peer& p = peer(t.peer);
  if (r.by_view || t.kind == Transfer::Kind::kView) inner_->release(r.where.token);
  r.landed = r.lent = false;
  const std::string what = fmt::format(
      "rank {} to rank {} over {}: a message of {} bytes arrived changed (crc32c {:08x}, "
      "sent {:08x})",
      t.peer, me_, caps_.name, t.bytes, found, crc);
  if (++r.tries == kIntegrityTries) {
    p.corrupt = fmt::format("{}, {} times", what, r.tries);
    complete({.id = id, .code = Code::kCorrupt});
    return forget_recv(id);
  }
  log().warn("weft: {}; asking for it again", what);
  retried_();
  p.crcs[t.tag] = crc;
  const std::uint32_t number = ++p.again & 0x3fffffff;
  Transfer again = t;
  again.head = nullptr;
  again.tag = own_bit_ | own_bit_ / 2 | number;
  again.id = static_cast<std::uint64_t>(kAgainHigh | (next_again_id_++ & kAgainMask)) << 32;
  if (r.by_view) {
    again.kind = Transfer::Kind::kView;
    again.data = nullptr;
  }
  again_ids_[again.id] = id;
  inner_->post({&again, 1});
  say(t.peer, Say::kAgain, t.tag, 0, number);
}

void Checked::sent(std::uint64_t id, Code code) {
  if (code != Code::kOk) {
    complete({.id = id, .code = code});
    return forget_send(id);
  }
  --sends_[id].under_way;
  end_send_if_over(id);
}

void Checked::end_send_if_over(std::uint64_t id) {
  const Send& s = sends_[id];
  if (!s.acknowledged || s.under_way > 0) return;
  complete({.id = id});
  forget_send(id);
}

// ---- progress ------------------------------------------------------------------------------

std::size_t Checked::poll(std::span<Completion> out) noexcept {
  if (handed_ == done_.size()) {
    done_.clear();
    handed_ = 0;
    std::array<Completion, 32> batch;
    const std::size_t n = inner_->poll(batch);
    for (std::size_t i = 0; i < n; ++i) {
      const Completion& c = batch[i];
      const auto high = static_cast<std::uint32_t>(c.id >> 32);
      if (high == kNoteHigh) {
        const auto low = static_cast<std::uint32_t>(c.id);
        if (!(low >> 31)) {
          free_out_.push_back(low);
        } else if (c.code == Code::kOk) {
          const auto rank = static_cast<Rank>((low & 0x7fffffff) / kWindow);
          const Note note = peer(rank).in[low % kWindow];
          post_note_receive(rank, low % kWindow);  // notes may overtake each other
          heard(rank, note);
        }
        continue;
      }
      std::uint64_t id = c.id;
      if (high >= kAgainHigh) {
        const auto it = again_ids_.find(id);
        if (it == again_ids_.end()) continue;
        id = it->second;
        again_ids_.erase(it);
      }
      if (recvs_.contains(id)) {
        landed(id, c);
      } else if (sends_.contains(id)) {
        sent(id, c.code);
      } else {
        complete(c);  // of no bytes
      }
    }
  }
  const std::size_t n = std::min(out.size(), done_.size() - handed_);
  std::copy_n(done_.begin() + static_cast<std::ptrdiff_t>(handed_), n, out.begin());
  handed_ += n;
  return n;
}

void Checked::cancel(std::uint32_t id_high) noexcept {
  const auto mine = [id_high](std::uint64_t id) { return id >> 32 == id_high; };
  for (auto it = again_ids_.begin(); it != again_ids_.end();) {
    if (mine(it->second)) {
      inner_->cancel(static_cast<std::uint32_t>(it->first >> 32));
      it = again_ids_.erase(it);
    } else {
      ++it;
    }
  }
  inner_->cancel(id_high);
  for (std::size_t i = handed_; i < done_.size();) {
    if (mine(done_[i].id)) {
      if (done_[i].view) release(done_[i].token);
      done_.erase(done_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  std::vector<std::uint64_t> ids;
  for (const auto& [id, s] : sends_)
    if (mine(id)) ids.push_back(id);
  for (const std::uint64_t id : ids) forget_send(id);
  ids.clear();
  for (const auto& [id, r] : recvs_) {
    if (!mine(id)) continue;
    if (r.landed && r.where.view) inner_->release(r.where.token);
    ids.push_back(id);
  }
  for (const std::uint64_t id : ids) forget_recv(id);
}

}  // namespace

std::unique_ptr<Transport> make_checked_transport(std::unique_ptr<Transport> inner, Rank me,
                                                  int nranks, std::function<void()> retried) {
  return std::make_unique<Checked>(std::move(inner), me, nranks, std::move(retried));
}

}  // namespace weft
