// Chooses the addresses (GIDs) and the partition that two RDMA ports use with each other. All
// functions are pure: they use tables, and access no device.
//
// A GID's index is local to a host, and new addresses shift it. So the ends exchange the GIDs
// themselves, and both choose the same pair: of the best common kind, the pair with the longest
// common prefix (the same subnet).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {

// The kinds of GIDs, best first.
enum class GidKind : std::uint8_t {
  kRoce2Ipv4,   // ::ffff:a.b.c.d, routed
  kRoce2Ipv6,   // a global or unique local address
  kRoce2Local,  // fe80::, within one link
  kInfiniBand,
  kRoce1,  // not routed
};
const char* name(GidKind kind) noexcept;

using GidBytes = std::array<std::uint8_t, 16>;

struct Gid {
  GidKind kind = GidKind::kRoce2Ipv4;
  int index = 0;  // in the table of the GID's port
  GidBytes bytes{};
};

enum class GidType : std::uint8_t { kInfiniBand, kRoce1, kRoce2 };  // the kernel's types
GidKind kind_of(GidType type, const GidBytes& bytes) noexcept;

// Writes "10.0.0.1", or the eight groups of IPv6.
std::string to_string(const GidBytes& gid);

// Returns the GIDs that are sent to the peer: kMostGids at most, by kind (best first), then index.
inline constexpr std::size_t kMostGids = 8;
std::vector<Gid> candidates(std::vector<Gid> table);

struct GidPair {
  Gid mine, theirs;
};
// Chooses a pair of GIDs, the same at both ends; none if the ports have no kind in common.
std::optional<GidPair> agree(std::span<const Gid> mine, std::span<const Gid> theirs);

// True if the ports are in different InfiniBand subnets: packets between them need a GRH.
bool routed(const GidPair& pair) noexcept;

// Returns the LID with which routers of other subnets reach a port: the subnet manager writes it
// into a site-local GID of the port, fec0:0:LID:subnet. 0: this GID has none.
std::uint16_t routable_lid(const Gid& gid) noexcept;

// Partition keys: the lower 15 bits name a partition, the upper bit says whether the port is a full
// member. Limited members reach full members only. On Ethernet all ports are full members of one.
inline constexpr std::uint16_t kFullMember = 0x8000, kEveryPartition = 0xffff;
// Returns the index of the first full membership, else of the first limited one, in `partition`
// (0: in any). -1: the table has none.
int choose_pkey(std::span<const std::uint16_t> table, std::uint16_t partition) noexcept;
// True if ports with these keys are in one partition and not both limited members.
bool reach_each_other(std::uint16_t pkey, std::uint16_t other) noexcept;

// Lists the GIDs for errors: "RoCE v2 IPv4 10.0.0.1 (index 1), RoCE v1 ...".
std::string describe(std::span<const Gid> gids);

}  // namespace weft
