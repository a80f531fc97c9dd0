// Integrity mode (transport/integrity/checked.h) over a transport that delivers notes and messages
// with any content, in any order. Transfers end once, canceled ones never, and data that does not
// match its checksum is never delivered as correct.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "transport/integrity/checked.h"
#include "transport/memory/crc32c.h"
#include "transport/offers.h"

namespace {

using weft::Code;
using weft::Completion;
using weft::Transfer;

constexpr std::size_t kMost = 2000;

// One half of a note, as in integrity/transport.h.
struct Half {
  std::uint32_t what, number;
  std::uint64_t tags[4];
  std::uint32_t check, zero;
};
constexpr std::size_t kNote = 2 * sizeof(Half);

// Keeps posted transfers until the input ends them.
class Below final : public weft::Transport, private weft::Views, private weft::Staging {
 public:
  void post(std::span<const Transfer> transfers) noexcept override {
    posted.insert(posted.end(), transfers.begin(), transfers.end());
  }
  std::size_t poll(std::span<Completion> out) noexcept override {
    const std::size_t n = std::min(out.size(), ended.size());
    std::copy_n(ended.begin(), n, out.begin());
    ended.erase(ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  void cancel(std::uint32_t high) noexcept override {
    std::erase_if(posted, [&](const Transfer& t) { return t.id >> 32 == high; });
    std::erase_if(ended, [&](const Completion& c) { return c.id >> 32 == high; });
  }
  weft::Caps caps() const override { return {.name = "fuzz", .max_view = 1500}; }
  weft::Status cause(weft::Rank) const override { return {}; }
  weft::Views* views() noexcept override { return this; }
  weft::Staging* staging() noexcept override { return this; }

  void end(std::size_t i, std::uint8_t with, bool right) {
    const Transfer t = posted[i];
    posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(i));
    const std::vector<std::uint8_t> bytes(t.bytes, with);
    Completion c{.id = t.id, .crc = weft::crc32c(bytes.data(), bytes.size()) ^ !right};
    if (t.kind == Transfer::Kind::kView) {
      lent.emplace_back(t.bytes, static_cast<std::byte>(with));
      c.view = lent.back().data();
      c.token = lent.size();
    } else if (t.kind == Transfer::Kind::kRecv && t.bytes) {
      std::memset(t.data, with, t.bytes);
    }
    ended.push_back(c);
  }
  // Completes a pending receive of a note with these bytes.
  void note(const std::array<Half, 2>& note) {
    for (std::size_t i = 0; i < posted.size(); ++i) {
      const Transfer t = posted[i];
      if (t.kind != Transfer::Kind::kRecv || t.bytes != kNote || !(t.tag >> 63)) continue;
      posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(i));
      std::memcpy(t.data, note.data(), kNote);
      ended.push_back({.id = t.id});
      return;
    }
  }

  std::vector<Transfer> posted;
  std::deque<Completion> ended;
  std::deque<std::vector<std::byte>> lent;
  std::vector<std::unique_ptr<std::byte[]>> kept;
  int staged = 0;

 private:
  bool release(std::uint64_t) noexcept override { return true; }
  void* stage(std::size_t bytes) noexcept override {
    if (bytes > 1500 || staged > 2) return nullptr;
    ++staged;
    return new std::byte[bytes];
  }
  void unstage(void* p) noexcept override {
    --staged;
    kept.emplace_back(static_cast<std::byte*>(p));  // a posted send may still read it
  }
  bool mapped(const void*, std::size_t) const noexcept override { return false; }
};

struct Mine {
  Transfer transfer;
  bool failed = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::uint8_t* const end = data + std::min<std::size_t>(size, 400);
  const auto next = [&]() -> std::uint8_t { return data < end ? *data++ : std::uint8_t{0}; };
  auto owned = std::make_unique<Below>();
  Below& below = *owned;
  const auto checked = weft::make_checked_transport(std::move(owned), 0, 2);
  std::vector<std::byte> source(kMost, std::byte{1});
  std::deque<std::vector<std::byte>> targets;
  std::map<std::uint64_t, Mine> mine;  // by id
  std::uint32_t id = 0;
  while (data < end) {
    const std::uint8_t op = next();
    switch (op % 8) {
      case 0:
      case 1:
      case 2: {  // a transfer with an unused tag
        Transfer t;
        t.kind = op % 8 == 0   ? Transfer::Kind::kSend
                 : op % 8 == 1 ? Transfer::Kind::kRecv
                               : Transfer::Kind::kView;
        t.peer = 1;
        t.tag = ++id;
        t.id = static_cast<std::uint64_t>(id) << 32;
        t.bytes = next() * (op & 64 ? 8u : 1u) % kMost;
        t.by_reader = t.kind == Transfer::Kind::kView && op & 128;
        if (t.kind == Transfer::Kind::kRecv) {
          targets.emplace_back(kMost);
          t.data = targets.back().data();
        } else if (t.kind == Transfer::Kind::kSend) {
          t.data = source.data();
        }
        mine[t.id] = {t};
        checked->post({&t, 1});
        break;
      }
      case 3: {  // a note with correct or corrupted halves
        Half half{next() % 3u, next() % 6u, {}, 0, 0};
        for (std::uint64_t& tag : half.tags) tag = next();
        half.check = weft::crc32c(&half, offsetof(Half, check));
        std::array<Half, 2> note{half, half};
        for (std::size_t h = 0; h < 2; ++h) note[h].check ^= op >> (6 + h) & 1;
        below.note(note);
        break;
      }
      case 4:
      case 5: {  // the end of a transfer below, except a note's, with these bytes
        std::vector<std::size_t> ready;
        for (std::size_t i = 0; i < below.posted.size(); ++i) {
          const Transfer& t = below.posted[i];
          if (t.kind == Transfer::Kind::kSend || !(t.bytes == kNote && t.tag >> 63))
            ready.push_back(i);
        }
        const std::uint8_t which = next(), with = next();
        if (!ready.empty()) below.end(ready[which % ready.size()], with, op < 224);
        break;
      }
      case 6:
        if (op & 128) {
          const std::uint8_t which = next();
          checked->cancel(which);
          std::erase_if(mine, [&](const auto& m) { return m.first >> 32 == which; });
          break;
        }
        [[fallthrough]];
      default: {
        std::array<Completion, 8> batch;
        const std::size_t n = checked->poll(batch);
        for (std::size_t i = 0; i < n; ++i) {
          const Completion& c = batch[i];
          const auto found = mine.find(c.id);
          if (found == mine.end()) std::abort();
          Mine& m = found->second;
          if (c.code != Code::kOk) {
            m.failed = true;
            continue;
          }
          if (m.transfer.kind == Transfer::Kind::kView && m.transfer.bytes) {
            if (!c.view) std::abort();
            const bool right =
                !m.transfer.by_reader ||
                checked->views()->verify(c.token, weft::crc32c(c.view, m.transfer.bytes));
            if (!right) continue;  // it is retransmitted, or fails
            checked->views()->release(c.token);
          }
          if (!m.failed) mine.erase(found);
        }
      }
    }
  }
  return 0;
}
