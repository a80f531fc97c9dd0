// Chooses GIDs and partition keys from tables. This file accesses no device.
#include "transport/verbs/gid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <tuple>

namespace weft {
namespace {

bool mapped_ipv4(const GidBytes& g) {
  return std::all_of(g.begin(), g.begin() + 10, [](std::uint8_t b) { return b == 0; }) &&
         g[10] == 0xff && g[11] == 0xff;
}

int common_prefix(const GidBytes& a, const GidBytes& b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i, bits += 8) {
    const auto differ = static_cast<std::uint8_t>(a[i] ^ b[i]);
    if (differ != 0) return bits + std::countl_zero(differ);
  }
  return bits;
}

}  // namespace

const char* name(GidKind kind) noexcept {
  switch (kind) {
    case GidKind::kRoce2Ipv4:
      return "RoCE v2 IPv4";
    case GidKind::kRoce2Ipv6:
      return "RoCE v2 IPv6";
    case GidKind::kRoce2Local:
      return "RoCE v2 link-local";
    case GidKind::kInfiniBand:
      return "InfiniBand";
    case GidKind::kRoce1:
      return "RoCE v1";
  }
  return "unknown";
}

GidKind kind_of(GidType type, const GidBytes& bytes) noexcept {
  if (type == GidType::kInfiniBand) return GidKind::kInfiniBand;
  if (type == GidType::kRoce1) return GidKind::kRoce1;
  if (mapped_ipv4(bytes)) return GidKind::kRoce2Ipv4;
  const bool local = bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
  return local ? GidKind::kRoce2Local : GidKind::kRoce2Ipv6;
}

std::string to_string(const GidBytes& gid) {
  if (mapped_ipv4(gid)) return fmt::format("{}.{}.{}.{}", gid[12], gid[13], gid[14], gid[15]);
  std::string text;
  for (std::size_t i = 0; i < gid.size(); i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  return text;
}

std::vector<Gid> candidates(std::vector<Gid> table) {
  std::stable_sort(table.begin(), table.end(), [](const Gid& a, const Gid& b) {
    return std::tie(a.kind, a.index) < std::tie(b.kind, b.index);
  });
  if (table.size() > kMostGids) table.resize(kMostGids);
  return table;
}

std::optional<GidPair> agree(std::span<const Gid> mine, std::span<const Gid> theirs) {
  // Symmetric, so that both ends choose alike: kind, reachability, prefix, and the two addresses in
  // order.
  const auto merit = [](const Gid& a, const Gid& b) {
    const bool lost = routed({a, b}) && (routable_lid(a) == 0 || routable_lid(b) == 0);
    return std::tuple(a.kind, lost, -common_prefix(a.bytes, b.bytes), std::min(a.bytes, b.bytes),
                      std::max(a.bytes, b.bytes), std::min(a.index, b.index));
  };
  std::optional<GidPair> best;
  for (const Gid& a : mine) {
    for (const Gid& b : theirs) {
      if (a.kind != b.kind) continue;
      if (!best || merit(a, b) < merit(best->mine, best->theirs)) best = GidPair{a, b};
    }
  }
  return best;
}

bool routed(const GidPair& pair) noexcept {
  const auto subnet = [](const Gid& gid) {
    std::array<std::uint8_t, 8> prefix;
    std::copy_n(gid.bytes.begin(), prefix.size(), prefix.begin());
    if (routable_lid(gid) != 0) prefix[4] = prefix[5] = 0;
    return prefix;
  };
  return pair.mine.kind == GidKind::kInfiniBand && subnet(pair.mine) != subnet(pair.theirs);
}

std::uint16_t routable_lid(const Gid& gid) noexcept {
  const GidBytes& g = gid.bytes;
  const bool site_local = g[0] == 0xfe && g[1] == 0xc0 && g[2] == 0 && g[3] == 0;
  if (gid.kind != GidKind::kInfiniBand || !site_local) return 0;
  return static_cast<std::uint16_t>(g[4] << 8 | g[5]);
}

int choose_pkey(std::span<const std::uint16_t> table, std::uint16_t partition) noexcept {
  int limited = -1;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const int named = table[i] & ~kFullMember;
    if (named == 0 || (partition != 0 && named != (partition & ~kFullMember))) continue;
    if (table[i] & kFullMember) return static_cast<int>(i);
    if (limited < 0) limited = static_cast<int>(i);
  }
  return limited;
}

bool reach_each_other(std::uint16_t pkey, std::uint16_t other) noexcept {
  return ((pkey ^ other) & ~kFullMember & 0xffff) == 0 && ((pkey | other) & kFullMember) != 0;
}

std::string describe(std::span<const Gid> gids) {
  std::vector<std::string> texts;
  for (const Gid& g : gids)
    texts.push_back(fmt::format("{} {} (index {})", name(g.kind), to_string(g.bytes), g.index));
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace weft
