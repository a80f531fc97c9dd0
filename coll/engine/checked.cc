// The engine in integrity mode: the reduction that reads an arrival verifies it piece by piece,
// while the piece is in cache, and computes the checksum of the result for its receivers.
#include <algorithm>
#include <cstring>
#include <span>

#include "coll/engine/engine.h"
#include "transport/memory/crc32c.h"
#include "transport/offers.h"

namespace weft {
namespace {

// The pieces of all sources together should fit into the first-level cache.
constexpr std::size_t kPieces = 32 << 10, kLeastPiece = 4 << 10, kLine = 64;

}  // namespace

// A reduction into one of its sources cannot be repeated.
bool Run::checked_by_reduce(std::uint32_t lane, const Node& arrive) const {
  const auto reduce = static_cast<std::uint32_t>(arrive.result_of);
  const Node& n = plan_->nodes[reduce];
  const Extent& e = extent(lane, reduce);
  return !phantom_ && e.bytes != 0 && address(n.from, e.from, lane) != address(n.to, e.to, lane);
}

bool Run::reduce_checked(std::uint32_t lane, std::uint32_t node, std::byte* to, bool sum_result) {
  const Node& n = plan_->nodes[node];
  const std::size_t bytes = extent(lane, node).bytes, count = sources_.size();
  const std::span<const std::uint32_t> members(plan_->members.data() + n.first_member, n.members);
  // The members are sources in rank order, with this rank's own value between them.
  const auto place = [&](std::size_t i) { return i < n.own_place ? i : i + 1; };
  read_sums_.assign(count, {});
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Node& arrive = plan_->nodes[members[i]];
    read_sums_[place(i)].known =
        arrive.credit < 0 && checks(arrive.link) && checked_by_reduce(lane, arrive);
  }
  std::uint32_t result = 0;
  const bool copies = copies_result(n, to, bytes);
  alignas(kLine) std::byte copied[kPiece];
  const std::size_t piece =
      std::clamp(kPieces / (count + copies) / kLine * kLine, kLeastPiece, kPiece);
  pieces_.resize(count);
  // Prefetches the next piece while the current one is reduced.
  const auto fetch = [&](std::size_t s, std::size_t at) {
    const auto* from = static_cast<const std::byte*>(sources_[s]);
    for (const std::size_t end = std::min(at + piece, bytes); at < end; at += kLine)
      __builtin_prefetch(from + at);
  };
  for (std::size_t s = 0; s < count; ++s) fetch(s, 0);
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t length = std::min(piece, bytes - at);
    for (std::size_t s = 0; s < count; ++s) {
      fetch(s, at + piece);
      pieces_[s] = static_cast<const std::byte*>(sources_[s]) + at;
      if (read_sums_[s].known) read_sums_[s].crc = crc32c(pieces_[s], length, read_sums_[s].crc);
    }
    std::byte* const made = copies ? copied : to + at;
    kernel_(made, pieces_.data(), static_cast<int>(count), length / element_);
    if (sum_result) result = crc32c(made, length, result);
    if (copies) std::memcpy(to + at, made, length);
  }
  sums_[index(lane, node)] = {sum_result, result};
  std::uint32_t missing = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Sum& sum = read_sums_[place(i)];
    const std::size_t arrival = index(lane, members[i]);
    if (!sum.known ||
        links_[plan_->nodes[members[i]].link]->views()->verify(points_[arrival].token, sum.crc))
      continue;
    missing_[arrival] = 1;
    points_[arrival].posted = kPosted;
    ++missing;
  }
  missing_[index(lane, node)] = missing;
  return missing == 0;
}

bool Run::came_again(std::uint32_t lane, std::uint32_t node) {
  if (!missing_[index(lane, node)]) return false;
  missing_[index(lane, node)] = 0;
  const auto reduce = static_cast<std::uint32_t>(plan_->nodes[node].result_of);
  if (--missing_[index(lane, reduce)] == 0) to_reduce_.push_back({lane, reduce});
  return true;
}

}  // namespace weft
