// Saves and loads checkpoints over all ranks, which agree on failures. Does not depend on a model.
#include "train/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>

#include "topo/base/log.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/source.h"
#include "transport/launch/failures.h"
#include "transport/memory/crc32c.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSchema = "weft.checkpoint/1";

// All-gathers a text of each rank, in rank order.
std::vector<std::string> all_gather_text(Communicator& comm, const std::string& mine) {
  const auto n = static_cast<std::size_t>(comm.size());
  std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(n);
  comm.all_gather(&size, sizes.data(), 1, DType::kUInt64).check();
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), ' ');
  comm.all_gather_v(mine.data(), all.data(), Blocks(counts), DType::kUInt8).check();
  std::vector<std::string> texts;
  for (std::size_t r = 0, at = 0; r < n; at += counts[r], ++r)
    texts.push_back(all.substr(at, counts[r]));
  return texts;
}

// Collective. `fault`: the error of this rank, or empty. Returns the first error, with its rank.
std::string first_fault(Communicator& comm, const std::string& fault) {
  const auto faults = all_gather_text(comm, fault);
  for (std::size_t r = 0; r < faults.size(); ++r)
    if (!faults[r].empty()) return fmt::format("{} (rank {})", faults[r], r);
  return "";
}
void agree_that_it_worked(Communicator& comm, const std::string& fault) {
  if (const std::string first = first_fault(comm, fault); !first.empty()) throw Error(first);
}
template <class F>
std::string fault_of(F f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

template <class T>
constexpr const char* kTypeName = sizeof(T) == 8 ? "float64" : "float32";

// Returns the manifest if the commit matches it; otherwise throws Damaged or Error.
json read_committed(const std::string& path) {
  const std::string commit = read_whole(path + "/commit");
  const std::string text = read_whole(path + "/manifest.json");
  if (commit != hex(crc32c(text.data(), text.size())))
    throw Damaged(
        fmt::format("checkpoint: {}/manifest.json is not the one that was committed", path));
  json manifest = json::parse(text, nullptr, false);
  if (manifest.is_discarded() || manifest.value("schema", "") != kSchema)
    throw Error(fmt::format("checkpoint: {}/manifest.json has not the schema {}", path, kSchema));
  return manifest;
}

std::string folder_name(long step, long again) {
  return fmt::format("step-{:08}{}", step, again != 0 ? fmt::format(".{}", again) : "");
}

// Returns the folders named step-N or step-N.K, in the order of (N, K).
std::vector<std::pair<std::pair<long, long>, std::string>> step_folders(const std::string& folder) {
  std::vector<std::pair<std::pair<long, long>, std::string>> all;
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(fmt::format("checkpoint: cannot list {}: {}; may this user read it?", folder,
                            error.message()));
  for (const auto& entry : entries) {
    long step = 0, again = 0;
    const std::string name = entry.path().filename();
    // Only names of new_folder(): "step-00000100.best" is a user's own folder.
    if (std::sscanf(name.c_str(), "step-%ld.%ld", &step, &again) >= 1 &&
        name == folder_name(step, again))
      all.push_back({{step, again}, entry.path()});
  }
  std::sort(all.begin(), all.end());
  return all;
}

// Returns whether the folder is a committed checkpoint; nullopt if it cannot be read.
std::optional<bool> committed(const std::string& path) {
  try {
    read_committed(path);
    return true;
  } catch (const Unreadable& e) {
    log().warn("{}", e.what());
    return std::nullopt;
  } catch (const std::exception&) {
    return false;
  }
}

// Creates a new folder for this step. An older folder of the step may exist: from an interrupted
// save, or because a resumed job reaches the step again.
std::string new_folder(const std::string& folder, int step) {
  fs::create_directories(folder);
  for (int again = 0;; ++again) {
    const std::string path = folder + "/" + folder_name(step, again);
    if (!fs::create_directory(path)) continue;
    sync_folder(folder);
    return path;
  }
}

// Removes the commit first: a partially removed checkpoint must not count.
void remove_folder(const std::string& path) {
  std::error_code ignored;
  fs::remove(path + "/commit", ignored);
  fs::remove_all(path, ignored);
  if (ignored) log().warn("checkpoint: cannot remove {}: {}", path, ignored.message());
}

void remove_old(const std::string& folder, const std::string& newest, int keep) try {
  auto all = step_folders(folder);
  // `newest` is not the highest step if a run resumed from an older checkpoint.
  int kept = 1;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (it->second == newest) continue;
    const std::optional<bool> good = kept < keep ? committed(it->second) : false;
    kept += good.value_or(false);
    if (good && !*good) remove_folder(it->second);
  }
} catch (const std::exception& e) {
  log().warn("{}", e.what());  // not fatal: the new checkpoint is complete
}

template <class T>
std::vector<IndexEntry> index_of(const std::vector<TensorPart<T>>& pieces) {
  std::vector<IndexEntry> entries;
  for (const TensorPart<T>& p : pieces)
    entries.push_back({p.logical, p.begin, p.duplicate ? 0 : p.count, "", 0, 0});
  return entries;
}

json to_json(const std::vector<IndexEntry>& entries) {
  json list = json::array();
  for (const IndexEntry& e : entries) list.push_back(to_json(e));
  return list;
}

std::vector<IndexEntry> entries_from(const json& list) {
  std::vector<IndexEntry> entries;
  for (const json& j : list) entries.push_back(entry_from_json(j));
  return entries;
}

template <class T>
void fill(const std::string& path, const json& manifest, const std::vector<TensorPart<T>>& pieces) {
  const auto entries = entries_from(manifest.at("pieces"));
  const bool wide = manifest.at("type") == "float64";
  std::map<std::string, std::vector<const IndexEntry*>> stored;
  for (const IndexEntry& e : entries) stored[e.logical.name].push_back(&e);
  std::map<std::string, std::vector<const TensorPart<T>*>> wanted;  // reads each tensor once
  for (const TensorPart<T>& p : pieces)
    if (p.count > 0) wanted[p.logical.name].push_back(&p);
  for (const auto& [name, parts] : wanted) {
    const auto found = stored.find(name);
    if (found == stored.end())
      throw Error(fmt::format(
          "checkpoint: {} has no tensor '{}': was it written by the same model?", path, name));
    std::vector<Source<T>> sources;
    for (const IndexEntry* e : found->second) sources.emplace_back(path, *e, wide);
    for (const TensorPart<T>* p : parts) {
      if (p->logical.shape != found->second[0]->logical.shape)
        throw Error(fmt::format("checkpoint: tensor '{}' is {} in {}, but {} in this model", name,
                                fmt::join(found->second[0]->logical.shape, " x "), path,
                                fmt::join(p->logical.shape, " x ")));
      for (const Extent& e : find_extents(p->logical, p->begin, p->count, found->second))
        sources[e.source].copy(e.from, e.count, p->data + e.to);
    }
  }
}

}  // namespace

bool checkpoint_there(Communicator comm, const std::string& folder) {
  std::uint8_t there = 0;
  const std::string unable = fault_of([&] {
    if (comm.rank() != 0) return;
    std::string unread;
    for (const auto& [step, path] : step_folders(folder)) {
      const std::optional<bool> good = committed(path);
      there |= good.value_or(false);
      if (!good) unread = path;
    }
    if (!there && !unread.empty())
      throw Error(fmt::format(
          "checkpoint: {} cannot be read, and may be whole: may this user read it, and is the disk "
          "well? To do without it, move it away",
          unread));
  });
  agree_that_it_worked(comm, unable);
  comm.broadcast(&there, &there, 1, DType::kUInt8, 0).check();
  return there != 0;
}

void require_no_checkpoint(Communicator comm, const std::string& folder) {
  if (checkpoint_there(std::move(comm), folder))
    throw UsageError(fmt::format(
        "--save {}: there are checkpoints of another run; say --resume to go on with it, or name "
        "another folder",
        folder));
}

template <class T>
Checkpoint save_checkpoint(Communicator comm, const std::string& folder, int step,
                           const std::vector<TensorPart<T>>& pieces, const json& extra,
                           const CheckpointOptions& options) {
  const auto point = [&](const char* name) {
    if (options.at_point) options.at_point(name);
  };
  const bool root = comm.rank() == 0;
  const auto me = static_cast<std::size_t>(comm.rank());

  // Rank 0 creates a new folder.
  std::string path;
  const std::string unable = fault_of([&] {
    if (root) path = new_folder(folder, step);
  });
  agree_that_it_worked(comm, unable);
  path = all_gather_text(comm, path)[0];
  // Removes the folder of a failed save, which could otherwise fill the disk.
  bool done = false;
  const auto agree_or_remove = [&](const std::string& mine) {
    const std::string first = first_fault(comm, mine);
    if (root && !first.empty() && !done) remove_folder(path);
    if (!first.empty()) throw Error(first);
  };
  point("folder");
  std::vector<std::vector<IndexEntry>> of_rank;
  for (const std::string& text : all_gather_text(comm, to_json(index_of(pieces)).dump()))
    of_rank.push_back(entries_from(json::parse(text)));
  const auto writes = share_out(of_rank);

  // Writes this rank's pieces, one after the other.
  std::vector<IndexEntry> written;
  std::string fault = fault_of([&] {
    std::vector<std::span<const std::byte>> parts;
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!writes[me][i]) continue;
      const auto bytes = std::as_bytes(std::span(pieces[i].data, pieces[i].count));
      IndexEntry e = of_rank[me][i];
      e.file = fmt::format("rank-{:05}.shard", me);
      e.offset = offset;
      e.crc = crc32c(bytes.data(), bytes.size());
      offset += bytes.size();
      parts.push_back(bytes);
      written.push_back(e);
    }
    point("before shard");
    if (!parts.empty()) write_whole(path + fmt::format("/rank-{:05}.shard", me), parts);
    point("shard");
  });
  agree_or_remove(fault);

  const auto texts = all_gather_text(comm, to_json(written).dump());
  fault = fault_of([&] {
    if (!root) return;
    std::vector<IndexEntry> all;
    for (const std::string& text : texts)
      for (IndexEntry& e : entries_from(json::parse(text))) all.push_back(std::move(e));
    require_whole(all);
    const json manifest = {{"schema", kSchema},    {"step", step},           {"type", kTypeName<T>},
                           {"ranks", comm.size()}, {"pieces", to_json(all)}, {"extra", extra}};
    // Only a file name in `extra` may contain bytes that are not UTF-8.
    const std::string text = manifest.dump(1, ' ', false, json::error_handler_t::replace);
    write_whole(path + "/manifest.json", text);
    point("manifest");
    write_whole(path + "/commit", hex(crc32c(text.data(), text.size())));
    done = true;
    point("commit");
    remove_old(folder, path, options.keep);
  });
  agree_or_remove(fault);
  point("end");
  return {step, extra, path};
}

namespace {

// Returns the folders on rank 0 from which to load, newest first. left_out: errors of committed but
// damaged checkpoints.
std::vector<std::string> choices(const std::string& folder, int step,
                                 std::vector<std::string>& left_out) {
  std::vector<std::string> all;
  const auto folders = step_folders(folder);
  for (auto it = folders.rbegin(); it != folders.rend(); ++it) {
    if (step >= 0 && it->first.first != step) continue;
    const std::string fault = fault_of([&] { read_committed(it->second); });
    if (fault.empty())
      all.push_back(it->second);
    else if (fs::exists(it->second + "/commit"))
      left_out.push_back(fault);
  }
  if (all.empty())
    throw Error(
        fmt::format("checkpoint: no committed checkpoint{} in {}: was its save interrupted?",
                    step < 0 ? "" : fmt::format(" of step {}", step), folder));
  return all;
}

// The result of one rank's load of one checkpoint.
struct Attempt {
  std::string damage, fault, commit;
};
template <class T>
Attempt attempt(Checkpoint& c, const std::vector<TensorPart<T>>& pieces,
                const std::function<void(const Checkpoint&)>& accept) {
  Attempt a;
  a.fault = fault_of([&] {
    try {
      const json manifest = read_committed(c.path);
      a.commit = read_whole(c.path + "/commit");
      c.step = manifest.at("step");
      c.extra = manifest.value("extra", json());
      if (accept) accept(c);
      fill(c.path, manifest, pieces);
    } catch (const Damaged& e) {
      a.damage = e.what();
    }
  });
  return a;
}

}  // namespace

template <class T>
Checkpoint load_checkpoint(Communicator comm, const std::string& folder,
                           const std::vector<TensorPart<T>>& pieces, int step,
                           const std::function<void(const Checkpoint&)>& accept) {
  // Rank 0 chooses; all ranks must see the same files.
  Checkpoint chosen;
  std::string list;
  const std::string unable = fault_of([&] {
    if (comm.rank() == 0)
      list = fmt::format("{}", fmt::join(choices(folder, step, chosen.left_out), "\n"));
  });
  agree_that_it_worked(comm, unable);
  std::istringstream paths(all_gather_text(comm, list)[0]);
  while (std::getline(paths, chosen.path)) {
    const Attempt mine = attempt(chosen, pieces, accept);
    agree_that_it_worked(comm, mine.fault);
    const std::string damage = first_fault(comm, mine.damage);
    if (!damage.empty()) {  // the next attempt overwrites all pieces
      chosen.left_out.push_back(damage);
      continue;
    }
    const auto commits = all_gather_text(comm, mine.commit);
    for (std::size_t r = 0; r < commits.size(); ++r)
      if (commits[r] != commits[0])
        throw Error(
            fmt::format("checkpoint: rank {} sees another {} than rank 0: is the folder on a "
                        "file system that all hosts share?",
                        r, chosen.path));
    return chosen;
  }
  throw Error(chosen.left_out.back() + "; no older checkpoint is whole");
}

#define WEFT_CHECKPOINT(T)                                                            \
  template Checkpoint save_checkpoint(Communicator, const std::string&, int,          \
                                      const std::vector<TensorPart<T>>&, const json&, \
                                      const CheckpointOptions&);                      \
  template Checkpoint load_checkpoint(Communicator, const std::string&,               \
                                      const std::vector<TensorPart<T>>&, int,         \
                                      const std::function<void(const Checkpoint&)>&);
WEFT_CHECKPOINT(float)
WEFT_CHECKPOINT(double)

}  // namespace weft::train
