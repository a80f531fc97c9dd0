// The interface of Rails: the transports to which users post (faces), and queries of the state.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/offers.h"
#include "transport/rails/state.h"

namespace weft {

using Slot = Rails::State::Slot;
using Use = Slot::Use;

namespace {

constexpr int kMostRailsTold = 31;  // by RailsInUse; callers may shift its bits by one

class Face final : public Transport, private DeviceMemory {
 public:
  Face(Rails::State& state, int rail) : s_(state), rail_(rail) {}

  void post(std::span<const Transfer> transfers) noexcept override { s_.post(rail_, transfers); }
  std::size_t poll(std::span<Completion> out) noexcept override { return s_.poll(rail_, out); }
  void cancel(std::uint32_t id_high) noexcept override { s_.cancel(id_high); }
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override {
    for (int r = 0; r < s_.nrails(); ++r)
      if (serves(r)) rail(r).forget(tag, mask | s_.own_bit);
  }
  Caps caps() const override { return s_.caps; }
  DeviceMemory* device_memory() noexcept override { return this; }
  Status cause(Rank peer) const override {
    if (s_.full)
      return {Code::kTransport,
              fmt::format("rank {}: more than {} messages are under way between rails", s_.me,
                          s_.options.most_messages),
              s_.me};
    if (peer >= 0 && static_cast<std::size_t>(peer) < s_.peers.size()) {
      const auto& p = s_.peers[static_cast<std::size_t>(peer)];
      for (std::size_t r = 0; p && r < p->lanes.size(); ++r)
        if (p->lanes[r].life.up()) {
          if (const Status why = s_.inner[r]->cause(peer); !why.ok()) return why;
        }
    }
    return s_.inner[static_cast<std::size_t>(rail_)]->cause(peer);
  }
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    for (const auto& t : s_.inner)
      if (t->disputed(peer, theirs)) return true;
    return false;
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                  Head& theirs) noexcept override {
    for (int r = 0; r < s_.nrails(); ++r) {
      const Rank from =
          serves(r) ? rail(r).unexpected(peer, tag, mask | s_.own_bit, theirs) : kNoRank;
      if (from != kNoRank) return from;
    }
    return kNoRank;
  }
  void before_pause() noexcept override {
    s_.send_urgent_receipts(true);
    rail(rail_).before_pause();
  }
  bool arm(std::vector<int>& fds) noexcept override {
    if (!s_.faces[static_cast<std::size_t>(rail_)].empty()) return false;
    bool armed = true;
    for (int r = 0; r < s_.nrails(); ++r)
      if (s_.used[static_cast<std::size_t>(r)]) armed = rail(r).arm(fds) && armed;
    s_.paths->arm(fds);
    s_.attention = true;
    return armed;
  }

 private:
  // True only if every rail reaches the memory: any may have to replace this one.
  bool reaches_gpu(void* data, std::size_t bytes) noexcept override {
    return std::ranges::all_of(s_.inner, [&](const auto& rail) {
      DeviceMemory* const memory = rail->device_memory();
      return memory && memory->reaches_gpu(data, bytes);
    });
  }
  void end_buffer(std::uint64_t serial) noexcept override {
    for (const auto& rail : s_.inner)
      if (DeviceMemory* const memory = rail->device_memory()) memory->end_buffer(serial);
  }
  Transport& rail(int r) { return *s_.inner[static_cast<std::size_t>(r)]; }
  // Whether the face uses rail r: its own, or one that has carried messages.
  bool serves(int r) const { return r == rail_ || s_.used[static_cast<std::size_t>(r)]; }

  Rails::State& s_;
  int rail_;
};

}  // namespace

Rails::Rails(std::vector<std::unique_ptr<Transport>> inner, std::unique_ptr<DatagramChannel> paths,
             Rank me, int nranks, const RailsOptions& options)
    : state_(std::make_unique<State>(std::move(inner), std::move(paths), me, nranks, options)) {}
Rails::~Rails() = default;

std::unique_ptr<Transport> Rails::face(int rail) { return std::make_unique<Face>(*state_, rail); }

std::uint64_t Rails::tell_receipts() noexcept {
  state_->send_urgent_receipts(true);
  return state_->counters.receipts;
}
bool Rails::receipts_sent(std::uint64_t first) const noexcept {
  return state_->unsent.empty() || state_->unsent.front() >= first;
}

void Rails::settle() noexcept {
  for (const Rank rank : state_->known)
    for (int r = 0; r < state_->nrails(); ++r)
      for (const Receipt::Stream stream : {Receipt::kShort, Receipt::kLong})
        if (state_->lane(rank, r).receipts[stream].pending() > 0)
          state_->send_receipt(rank, r, stream);
  state_->flush_posts();
}

bool Rails::settled() const noexcept {
  if (state_->slots.kept_sends() > 0) return false;
  return std::ranges::none_of(state_->slots.all(),
                              [](const auto& s) { return s->use == Use::kReceiptOut && s->busy; });
}

void Rails::poll() noexcept { state_->progress(); }
void Rails::on_event(std::function<void(const RailEvent&)> call) {
  state_->on_event = std::move(call);
}
RailsCounters Rails::counters() const { return state_->counters; }
std::uint64_t Rails::sent_bytes(int rail) const noexcept {
  return state_->sent_bytes[static_cast<std::size_t>(rail)].load(std::memory_order_relaxed);
}
bool Rails::up(Rank peer, int rail) const {
  return state_->lane(peer, rail).life.up();
}
std::vector<int> Rails::shares(Rank peer, int home) const {
  std::vector<int> shares(state_->inner.size());
  for (const std::uint8_t r : state_->peer(peer).routes.out()[static_cast<std::size_t>(home)])
    ++shares[r];
  return shares;
}

std::map<std::tuple<std::uint32_t, Rank, int>, RailsInUse> Rails::in_use() const {
  std::map<std::tuple<std::uint32_t, Rank, int>, RailsInUse> all;
  for (const auto& slot : state_->slots.all()) {
    const bool send = slot->use == Use::kSend;
    if ((!send && slot->use != Use::kRecv) || slot->acked) continue;
    if (slot->rail < 0 || slot->rail >= kMostRailsTold) continue;
    RailsInUse& of = all[{static_cast<std::uint32_t>(slot->t.id >> 32), slot->t.peer, slot->home}];
    (send ? of.sends : of.recvs) |= 1u << slot->rail;
  }
  return all;
}

std::string Rails::describe(Rank rank) const {
  std::string text;
  const State::Peer& p = state_->peer(rank);
  for (int r = 0; r < state_->nrails(); ++r) {
    const State::Lane& l = p.lanes[static_cast<std::size_t>(r)];
    text += fmt::format("{}rail {} {}", r ? ", " : "", r, l.life.name());
    if (!l.life.up()) text += fmt::format(" ({})", l.life.cause());
    if (l.open) text += fmt::format(" with {} messages under way", l.open);
  }
  if (!p.talk.notes().empty()) text += fmt::format(", {} notes to tell it", p.talk.notes().size());
  return text;
}

}  // namespace weft
