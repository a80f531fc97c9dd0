// Compares the greetings of the ranks of a rail. This file is independent of how they are
// exchanged.
#include "transport/verbs/greeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "transport/verbs/gid.h"
#include "transport/verbs/ring.h"

namespace weft {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;
constexpr std::size_t kLeastSlot = 1024;
// Keeps messages of 8 KiB eager, regardless of the number of rails and ranks. A rank that uses more
// peers than places closes connections, but most ranks use few.
constexpr std::size_t kGoodSlot = (8u << 10) + (kVerbsFrontBytes + kLine - 1) / kLine * kLine;

// Throws Error if two ranks do not agree; `slot` is the smallest slot so far.
void compare(const VerbsGreeting& a, Rank rank, const VerbsGreeting& b, const std::string& whose,
             std::uint32_t& slot) {
  const auto same = [&](const char* variable, std::uint32_t mine, std::uint32_t theirs) {
    if (mine != theirs)
      throw Error(
          fmt::format("verbs: {} is {} on rank {} and {} on {}; it must be the same on all "
                      "ranks",
                      variable, mine, rank, theirs, whose));
  };
  same("WEFT_VERBS_QPS", a.qps, b.qps);
  same("WEFT_VERBS_SLOTS", a.slots, b.slots);
  if (a.chosen || b.chosen) same("WEFT_VERBS_SLOT_BYTES", a.slot_bytes, b.slot_bytes);
  same("WEFT_VERBS_WINDOWS", a.windows, b.windows);
  slot = std::min(slot, b.slot_bytes);
  if (a.ethernet != b.ethernet)
    throw Error(
        fmt::format("verbs: rank {} is on {}, {} on {}; WEFT_RAILS must list the same kind of "
                    "device in the same order on every host",
                    rank, a.ethernet ? "Ethernet" : "InfiniBand", whose,
                    b.ethernet ? "Ethernet" : "InfiniBand"));
  if (((a.pkey ^ b.pkey) & 0x7fff) != 0)
    throw Error(
        fmt::format("verbs: rank {} is in partition {:#06x}, {} in {:#06x}; choose one with "
                    "WEFT_VERBS_PKEY on every host, or ask who runs the fabric (its subnet "
                    "manager)",
                    rank, a.pkey, whose, b.pkey));
}

}  // namespace

std::string VerbsGreeting::encode() const {
  std::string text(1, kVerbsGreeting);
  text.append(reinterpret_cast<const char*>(this), sizeof *this);
  return text;
}

std::string verbs_verdict(std::span<const std::string> greetings,
                          const std::function<std::string(Rank)>& where) {
  VerbsGreeting first;
  std::uint32_t slot = UINT32_MAX;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    const std::string& text = greetings[r];
    const auto rank = static_cast<Rank>(r);
    if (text.empty() || text[0] != kVerbsGreeting) {
      const char kind = text.starts_with(kVerbsCut) ? kVerbsCut : kVerbsBroken;
      return kind + fmt::format("{}: {}", where(rank), text.empty() ? "no answer" : text.substr(1));
    }
    VerbsGreeting one;
    if (text.size() != 1 + sizeof one)
      return kVerbsBroken + where(rank) +
             ": its greeting has another length; run the same build everywhere";
    std::memcpy(&one, text.data() + 1, sizeof one);
    if (r == 0) first = one;
    try {
      compare(first, 0, one, where(rank), slot);
    } catch (const Error& error) {
      return kVerbsBroken + std::string(error.what());
    }
  }
  std::string verdict(1, kVerbsGreeting);
  return verdict.append(reinterpret_cast<const char*>(&slot), sizeof slot);
}

std::size_t verbs_slot_bytes(const std::string& verdict) {
  std::uint32_t slot = 0;
  if (verdict.starts_with(kVerbsGreeting) && verdict.size() == 1 + sizeof slot) {
    std::memcpy(&slot, verdict.data() + 1, sizeof slot);
    return slot;
  }
  const std::string why = verdict.empty() ? "verbs: rank 0 sent no result" : verdict.substr(1);
  if (verdict.starts_with(kVerbsCut)) throw StatusError({Code::kTransport, why});
  throw Error(why);
}

std::size_t verbs_half(const VerbsSettings& s, int places, std::size_t slot_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(places) * static_cast<std::size_t>(s.qps) *
                            static_cast<std::size_t>(s.slots) * slot_bytes;
  return (bytes + kPage - 1) / kPage * kPage;
}

VerbsShape verbs_shape(const VerbsSettings& s, double rate_gbps, int nranks, int nrails) {
  VerbsShape shape;
  shape.places = std::clamp(nranks - 1, 1, s.connections);
  shape.slot_bytes = s.slot_bytes ? s.slot_bytes : slot_bytes_for(rate_gbps);
  const std::size_t budget = kVerbsMemory / 2 / static_cast<std::size_t>(std::max(1, nrails));
  const std::size_t slots = static_cast<std::size_t>(s.qps) * static_cast<std::size_t>(s.slots);
  // Returns the largest slot size that fits for this many places.
  const auto fitting = [&](int places) {
    return budget / (static_cast<std::size_t>(places) * slots) / kLine * kLine;
  };
  if (!s.slot_bytes)
    shape.slot_bytes = std::min(shape.slot_bytes, std::max(fitting(shape.places), kGoodSlot));
  const auto most =
      static_cast<int>(std::min<std::size_t>(budget / (slots * shape.slot_bytes), INT_MAX));
  shape.places = std::clamp(most, 1, shape.places);
  if (!s.slot_bytes && fitting(shape.places) < shape.slot_bytes)  // for one place
    shape.slot_bytes = std::max(fitting(shape.places), kLeastSlot);
  shape.half = verbs_half(s, shape.places, shape.slot_bytes);
  return shape;
}

}  // namespace weft
