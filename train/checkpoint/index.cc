// Entries of the index as JSON, their extents and writers. Opens no file.
#include "train/checkpoint/index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "topo/base/status.h"

namespace weft::train {
namespace {

// Layout of a shard in its tensor: a block of `mine` elements out of every `whole`.
struct Lie {
  explicit Lie(const Logical& l) {
    std::size_t inner = 1;
    for (std::size_t d = static_cast<std::size_t>(l.shard.dim) + 1; d < l.shape.size(); ++d)
      inner *= l.shape[d];
    whole = l.shape[static_cast<std::size_t>(l.shard.dim)] * inner;
    mine = whole / static_cast<std::size_t>(l.shard.of);
    index = static_cast<std::size_t>(l.shard.index);
  }
  bool has(std::size_t logical) const { return logical % whole / mine == index; }
  std::size_t local(std::size_t logical) const { return logical / whole * mine + logical % mine; }
  std::size_t left_in_block(std::size_t local) const { return mine - local % mine; }
  std::size_t whole, mine, index;
};

}  // namespace

std::string IndexEntry::key() const {
  return fmt::format("{}|{}|{}|{}|{}|{}", logical.name, logical.shard.dim, logical.shard.index,
                     logical.shard.of, begin, count);
}

nlohmann::json to_json(const IndexEntry& e) {
  return {{"tensor", e.logical.name},   {"shape", e.logical.shape},
          {"dim", e.logical.shard.dim}, {"index", e.logical.shard.index},
          {"of", e.logical.shard.of},   {"begin", e.begin},
          {"count", e.count},           {"file", e.file},
          {"offset", e.offset},         {"crc32c", e.crc}};
}

IndexEntry entry_from_json(const nlohmann::json& j) {
  IndexEntry e;
  try {
    e.logical.name = j.at("tensor");
    e.logical.shape = j.at("shape").get<std::vector<std::size_t>>();
    e.logical.shard = {j.at("dim"), j.at("index"), j.at("of")};
    e.begin = j.at("begin");
    e.count = j.at("count");
    e.file = j.at("file");
    e.offset = j.at("offset");
    e.crc = j.at("crc32c");
  } catch (const nlohmann::json::exception& error) {
    throw Error(
        fmt::format("checkpoint: an entry of the manifest cannot be read: {}", error.what()));
  }
  const Shard& s = e.logical.shard;
  const bool sane =
      !e.logical.shape.empty() && s.dim >= 0 &&
      static_cast<std::size_t>(s.dim) < e.logical.shape.size() && s.of >= 1 && s.index >= 0 &&
      s.index < s.of && e.logical.logical_count() > 0 &&
      e.logical.shape[static_cast<std::size_t>(s.dim)] % static_cast<std::size_t>(s.of) == 0 &&
      e.begin <= e.logical.count() && e.count <= e.logical.count() - e.begin &&
      e.file.find('/') == std::string::npos;
  if (!sane)
    throw Error(
        fmt::format("checkpoint: the part of tensor '{}' (block {} of {} along dimension "
                    "{}, elements {} + {}) cannot be",
                    e.logical.name, s.index, s.of, s.dim, e.begin, e.count));
  return e;
}

std::vector<Extent> find_extents(const Logical& wanted, std::size_t begin, std::size_t count,
                                 const std::vector<const IndexEntry*>& stored) {
  std::vector<Extent> extents;
  const Lie to(wanted);
  std::size_t last = 0;  // index of the previous element's entry
  for (std::size_t at = begin; at < begin + count;) {
    const std::size_t logical = wanted.logical_index(at);
    std::size_t found = stored.size(), local = 0;
    for (std::size_t k = 0; k < stored.size() && found == stored.size(); ++k) {
      const std::size_t i = (last + k) % stored.size();
      const Lie from(stored[i]->logical);
      if (!from.has(logical)) continue;
      local = from.local(logical);
      if (local >= stored[i]->begin && local < stored[i]->begin + stored[i]->count) found = i;
    }
    if (found == stored.size())
      throw Error(
          fmt::format("checkpoint: nobody wrote element {} of tensor '{}': it was saved by "
                      "ranks that did not have all of it",
                      logical, wanted.name));
    last = found;
    const IndexEntry& source = *stored[found];
    const std::size_t length =
        std::min({begin + count - at, to.left_in_block(at),
                  Lie(source.logical).left_in_block(local), source.begin + source.count - local});
    extents.push_back({found, local - source.begin, at - begin, length});
    at += length;
  }
  return extents;
}

std::vector<std::vector<bool>> share_out(const std::vector<std::vector<IndexEntry>>& of_rank) {
  std::map<std::string, std::vector<std::pair<std::size_t, std::size_t>>> holders;
  std::vector<std::vector<bool>> writes;
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    writes.emplace_back(of_rank[r].size(), false);
    for (std::size_t i = 0; i < of_rank[r].size(); ++i)
      if (of_rank[r][i].count > 0) holders[of_rank[r][i].key()].emplace_back(r, i);
  }
  std::vector<std::size_t> load(of_rank.size(), 0);
  for (const auto& [key, all] : holders) {
    const auto& [r, i] = *std::min_element(
        all.begin(), all.end(),
        [&](const auto& a, const auto& b) { return load[a.first] < load[b.first]; });
    writes[r][i] = true;
    load[r] += of_rank[r][i].count;
  }
  return writes;
}

void require_whole(const std::vector<IndexEntry>& all) {
  std::map<std::string, std::vector<const IndexEntry*>> tensors;
  for (const IndexEntry& e : all) tensors[e.logical.name].push_back(&e);
  for (const auto& [name, pieces] : tensors) {
    Logical whole = pieces[0]->logical;
    whole.shard = {};
    for (const IndexEntry* e : pieces)
      if (e->logical.shape != whole.shape)
        throw Error(fmt::format("checkpoint: ranks have tensor '{}' in different shapes: {} and {}",
                                name, fmt::join(whole.shape, " x "),
                                fmt::join(e->logical.shape, " x ")));
    find_extents(whole, 0, whole.logical_count(), pieces);
  }
}

}  // namespace weft::train
