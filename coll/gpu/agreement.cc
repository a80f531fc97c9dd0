// Compares the records of the ranks of a device task: did all make the same call?
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "coll/engine/signature.h"
#include "coll/gpu/lane.h"
#include "coll/runtime/core.h"

namespace weft {
namespace {

// The fields that must be equal, in order of comparison.
std::array<std::uint64_t, 3> alike(const Head& head) {
  std::uint64_t what = head.about[2] & ~kDeviceBit;
  if (by_pairs(head)) what &= kUnevenBit | 0xffffffffu;  // the rest identifies the pair
  return {head.about[1], what, head.about[0]};
}

std::uint64_t sequence_of(const Head& head) { return head.about[1] & kSignatureSequenceMask; }

}  // namespace

Status agreement_of(std::span<const DeviceRecord> records, std::span<const Rank> world,
                    bool captured) {
  bool same = true;
  for (const DeviceRecord& r : records) same = same && alike(r.call) == alike(records[0].call);
  if (same) return {};
  // A rank whose call here was empty may be one call ahead: then the call before is compared.
  const Head* earliest = &records[0].call;
  for (const DeviceRecord& r : records)
    if (sequence_of(r.call) < sequence_of(*earliest)) earliest = &r.call;
  std::vector<Head> said;
  for (const DeviceRecord& r : records)
    said.push_back(!same_place(r.call, *earliest) && r.before.sign &&
                           same_place(r.before, *earliest)
                       ? r.before
                       : r.call);
  std::map<std::array<std::uint64_t, 3>, std::vector<std::size_t>> by_call;
  for (std::size_t r = 0; r < said.size(); ++r) by_call[alike(said[r])].push_back(r);
  // The smallest group is wrong; of equally large ones, the one with the higher rank.
  const auto [few, many] = std::ranges::minmax_element(by_call, {}, [](const auto& group) {
    return std::pair(group.second.size(), ~group.second.front());
  });
  const std::size_t right = many->second.front(), wrong = few->second.front();
  return {Code::kMismatch,
          (captured ? "captured " : "") +
              disagreement(world[right], said[right], world[wrong], said[wrong]),
          world[wrong]};
}

}  // namespace weft
