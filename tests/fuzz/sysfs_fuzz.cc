// Files of sysfs with any content, dangling links, and folders in place of files: discovery never
// throws, and ends. An input selects the file, its change, and its content.
// runs: 2000
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "topo/discover.h"
#include "topo/fake_sysfs.h"
#include "topo/sysfs.h"

namespace {

namespace fs = std::filesystem;

void require(bool truth) {
  if (!truth) std::abort();
}

struct Tree {
  Tree() {
    weft::add_two_rail_host(sysfs);
    for (const auto& entry : fs::recursive_directory_iterator(sysfs.root()))
      if (entry.is_regular_file() || entry.is_symlink()) files.push_back(entry.path());
    std::ranges::sort(files);
  }
  weft::FakeSysfs sysfs;
  std::vector<fs::path> files;
};

// Replaces a file of the tree while alive.
class Changed {
 public:
  Changed(const fs::path& path, int how, const std::string& text) : path_(path) {
    fs::rename(path_, kept());
    if (how == 0) std::ofstream(path_, std::ios::binary) << text;
    if (how == 1) fs::create_symlink(path_.filename(), path_);  // a loop
    if (how == 2) fs::create_directory(path_);
    if (how == 3) fs::create_symlink(fs::path("../../..") / fs::path(text).filename(), path_);
  }
  ~Changed() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    fs::rename(kept(), path_, ignored);
  }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

 private:
  // Outside of the tree, where discovery does not list it.
  fs::path kept() const {
    return fs::temp_directory_path() / ("weft_fuzz_" + std::to_string(getpid()) + "_kept");
  }
  fs::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  static const Tree tree;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const int cpu : sysfs::parse_cpulist(text)) require(cpu >= 0);
  (void)sysfs::is_pci_address(text);
  if (size < 2) return 0;
  std::string content = text.substr(2);
  if ((data[1] & 3) == 3) content = content.substr(0, content.find('\0')).substr(0, 200);
  const Changed changed(tree.files[data[0] % tree.files.size()], data[1] & 3, content);
  const std::string& root = tree.sysfs.root();
  HostDescription host;
  host.nics = sysfs::discover_nics(root, false);
  host.numa = sysfs::discover_numa(root);
  host.gpus = sysfs::discover_gpus(root, "");
  for (const Nic& nic : host.nics)
    require(std::isfinite(nic.rate_gbps) && nic.rate_gbps >= 0 && nic.numa_node >= -1);
  (void)sysfs::numa_node_of(host.numa, text);
  unsetenv("WEFT_RAILS");
  (void)choose_rails(host);
  return 0;
}
