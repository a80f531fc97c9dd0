// Which addresses (GIDs), and which partition, two RDMA ports use with each other. Pure functions
// on tables.
//
// The index of a GID means nothing on another host: adding an address shifts it. So both ends
// exchange what their GIDs *are*, and both choose the same pair: the best kind that both have, of
// these the pair with the longest common prefix (the same subnet).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {

// Best first.
enum class GidKind : std::uint8_t {
  kRoce2Ipv4,   // ::ffff:a.b.c.d, routed, as an engineer reads it
  kRoce2Ipv6,   // a global or unique local address
  kRoce2Local,  // fe80::, within one link
  kInfiniBand,
  kRoce1,  // not routed
};
const char* name(GidKind kind) noexcept;

using GidBytes = std::array<std::uint8_t, 16>;

struct Gid {
  GidKind kind = GidKind::kRoce2Ipv4;
  int index = 0;  // in its port's table
  GidBytes bytes{};
};

enum class GidType : std::uint8_t { kInfiniBand, kRoce1, kRoce2 };  // as the kernel tells
GidKind kind_of(GidType type, const GidBytes& bytes) noexcept;

// "10.0.0.1", or the eight groups of IPv6.
std::string to_string(const GidBytes& gid);

// What goes to the peer: at most this many, best kinds first, in the order of their indices.
inline constexpr std::size_t kMostGids = 8;
std::vector<Gid> candidates(std::vector<Gid> table);

struct GidPair {
  Gid mine, theirs;
};
// Both ends come to the same pair. None where no kind is common.
std::optional<GidPair> agree(std::span<const Gid> mine, std::span<const Gid> theirs);

// Whether the ports are of different subnets of InfiniBand: then packets need a GRH to be routed.
bool routed(const GidPair& pair) noexcept;

// The LID by which the routers of all other subnets know a port. A subnet manager that gives such
// writes it into a site-local GID of the port, fec0:0:LID:subnet. 0: this GID has none.
std::uint16_t routable_lid(const Gid& gid) noexcept;

// Partition keys: the lower 15 bits name a partition, the upper one says whether the port is a full
// member of it. Limited members reach full ones only. On Ethernet all ports are full members of
// one.
inline constexpr std::uint16_t kFullMember = 0x8000, kEveryPartition = 0xffff;
// Index of the first full membership, else of the first membership at all; of that partition only,
// unless it is 0. -1 where there is none.
int choose_pkey(std::span<const std::uint16_t> table, std::uint16_t partition) noexcept;
bool reach_each_other(std::uint16_t pkey, std::uint16_t other) noexcept;

// "RoCE v2 IPv4 10.0.0.1 (index 1), RoCE v1 ... ", for errors.
std::string describe(std::span<const Gid> gids);

}  // namespace weft
