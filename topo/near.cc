// Compares paths in the PCI tree, and assigns a host's GPUs to ranks. Does not use CUDA.
#include "topo/near.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>
#include <tuple>

#include "topo/sysfs.h"

namespace weft {

namespace {

constexpr int kFar = 100, kUnknown = std::numeric_limits<int>::max();

// "pci0000:17", "0000:17:01.0", "0000:18:00.0": from the root complex to the function; empty if the
// tree has no such function.
std::vector<std::string> pci_path(const std::string& root, const std::string& pci) {
  std::error_code error;
  std::vector<std::string> path;
  if (!sysfs::is_pci_address(pci)) return path;
  const auto real = std::filesystem::canonical(root + "/bus/pci/devices/" + pci, error);
  for (const auto& part : real)
    if (const std::string name = part.string();
        name.starts_with("pci") || (!path.empty() && sysfs::is_pci_address(name)))
      path.push_back(name);
  return path;
}

}  // namespace

int pci_distance(const std::string& a, const std::string& b, const std::string& sysfs_root) {
  const auto from = pci_path(sysfs_root, a), to = pci_path(sysfs_root, b);
  if (from.empty() || to.empty()) return kUnknown;
  const auto [x, y] = std::ranges::mismatch(from, to);
  const bool one_root = x != from.begin();
  const int nodes[] = {sysfs::pci_numa_node(sysfs_root, a), sysfs::pci_numa_node(sysfs_root, b)};
  const bool two_nodes = nodes[0] >= 0 && nodes[1] >= 0 && nodes[0] != nodes[1];
  return static_cast<int>((from.end() - x) + (to.end() - y)) + (one_root ? 0 : kFar) +
         (two_nodes ? 2 * kFar : 0);
}

void set_gpu(Place& place, const std::string& pci, const std::string& sysfs_root) {
  place.gpu = pci;
  for (Nic& rail : place.rails) {
    const int far = pci_distance(rail.pci, pci, sysfs_root);
    rail.from_gpu = far == kUnknown ? -1 : far;
  }
}

std::vector<int> nearest_gpus(const std::vector<std::string>& rails,
                              const std::vector<std::string>& gpus, const std::string& sysfs_root) {
  const int nranks = static_cast<int>(rails.size()), ngpus = static_cast<int>(gpus.size());
  std::vector<int> result(rails.size(), -1);
  if (ngpus == 0) return result;
  struct Pair {
    int distance, from_order, rank, gpu;
    auto key() const { return std::tuple(distance, from_order, rank, gpu); }
  };
  std::vector<Pair> pairs;
  for (int rank = 0; rank < nranks; ++rank)
    for (int gpu = 0; gpu < ngpus; ++gpu)
      pairs.push_back({pci_distance(rails[rank], gpus[gpu], sysfs_root),
                       std::abs(rank % ngpus - gpu), rank, gpu});
  std::ranges::sort(pairs, {}, &Pair::key);
  const int share = nranks / ngpus;
  int extra = nranks % ngpus;  // GPUs that may get one more rank
  std::vector<int> load(gpus.size(), 0);
  for (const Pair& p : pairs) {
    if (result[p.rank] >= 0 || load[p.gpu] > share || (load[p.gpu] == share && extra == 0))
      continue;
    if (load[p.gpu]++ == share) --extra;
    result[p.rank] = p.gpu;
  }
  return result;
}

std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* visible,
                              const std::string& proc_root) {
  std::vector<Gpu> all, seen;
  for (const Gpu& gpu : gpus)
    if (gpu.name.starts_with("NVIDIA")) all.push_back(gpu);
  if (visible == nullptr) return all;
  std::istringstream entries(visible);
  for (std::string entry; std::getline(entries, entry, ',');) {
    int index = -1;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
    const bool number = error == std::errc() && end == entry.data() + entry.size();
    const auto named = std::ranges::find_if(all, [&](const Gpu& gpu) {
      return entry.starts_with("GPU-") &&
             sysfs::read_field(proc_root + "/driver/nvidia/gpus/" + gpu.pci + "/information",
                               "GPU UUID:")
                 .starts_with(entry);
    });
    if (number && index >= 0 && index < static_cast<int>(all.size()))
      seen.push_back(all[static_cast<std::size_t>(index)]);
    else if (named != all.end())
      seen.push_back(*named);
    else
      break;  // CUDA ignores entries after an unknown entry
  }
  return seen;
}

}  // namespace weft
