// Reads sysfs and procfs. Depends on the format of the files, not on their meaning for a job.
#include "topo/sysfs.h"

#include <string.h>  // strverscmp

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

namespace weft::sysfs {

namespace fs = std::filesystem;

namespace {

std::string trim(const std::string& text) {
  const char* blanks = " \t\r\n";
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

bool parse(std::string_view text, int base, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trim(line);
}

std::string read_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return trim(line.substr(key.size()));
  }
  return "";
}

std::int64_t read_integer(const std::string& path, std::int64_t unknown) {
  const std::string line = read_line(path);
  const bool hex = line.starts_with("0x");
  std::int64_t value = 0;
  return parse(std::string_view(line).substr(hex ? 2 : 0), hex ? 16 : 10, value) ? value : unknown;
}

std::vector<std::string> list(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return strverscmp(a.c_str(), b.c_str()) < 0;
  });
  return names;
}

std::vector<int> parse_cpulist(const std::string& text) {
  constexpr std::int64_t kMaxCpu = 1 << 16;  // limits the memory for an invalid range
  std::set<int> cpus;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, comma - at);
    at = comma + 1;
    const auto dash = part.find('-');
    std::int64_t first = 0, last = 0;
    if (!parse(part.substr(0, dash), 10, first)) continue;
    last = first;
    if (dash != std::string_view::npos && !parse(part.substr(dash + 1), 10, last)) continue;
    if (first < 0 || last > kMaxCpu) continue;
    for (std::int64_t cpu = first; cpu <= last; ++cpu) cpus.insert(static_cast<int>(cpu));
  }
  return {cpus.begin(), cpus.end()};
}

bool is_pci_address(const std::string& text) {
  // domain (4 or more digits) : bus : device . function
  const auto colon = text.find(':');
  if (colon == std::string::npos || colon < 4 || text.size() != colon + 8) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool separator = i == colon || i == colon + 3;
    const bool dot = i == colon + 6;
    if (separator ? text[i] != ':'
        : dot     ? text[i] != '.'
                  : !isxdigit(static_cast<unsigned char>(text[i]))) {
      return false;
    }
  }
  return true;
}

std::string pci_address(const std::string& device) {
  std::error_code error;
  fs::path path = fs::canonical(device, error);
  if (error) return "";
  for (; path.has_relative_path(); path = path.parent_path()) {
    if (is_pci_address(path.filename().string())) return path.filename().string();
  }
  // In a tree copied with links followed, the device's uevent contains the address.
  const std::string slot = read_field(device + "/uevent", "PCI_SLOT_NAME=");
  return is_pci_address(slot) ? slot : "";
}

int pci_numa_node(const std::string& root, const std::string& pci) {
  if (pci.empty()) return -1;
  const std::int64_t node = read_integer(root + "/bus/pci/devices/" + pci + "/numa_node", -1);
  return node >= 0 && node < (1 << 16) ? static_cast<int>(node) : -1;
}

std::vector<int> cpus_beside(const std::string& root, const std::string& pci) {
  if (pci.empty()) return {};
  std::string cpus = read_line(root + "/bus/pci/devices/" + pci + "/local_cpulist");
  if (const int node = pci_numa_node(root, pci); cpus.empty() && node >= 0)
    cpus = read_line(root + "/devices/system/node/node" + std::to_string(node) + "/cpulist");
  return parse_cpulist(cpus);
}

bool before(const Nic& a, const Nic& b) {
  // A longer PCI address has a longer, and thus larger, domain number.
  const auto key = [](const Nic& nic) {
    return std::tuple(nic.pci.empty(), nic.pci.size(), nic.pci, !nic.rdma);
  };
  if (key(a) != key(b)) return key(a) < key(b);
  return strverscmp(a.name.c_str(), b.name.c_str()) < 0;
}

std::vector<NumaNode> discover_numa(const std::string& root) {
  std::vector<NumaNode> nodes;
  const std::string directory = root + "/devices/system/node";
  for (const std::string& name : list(directory)) {
    std::int64_t id = 0;
    if (!name.starts_with("node") || !parse(std::string_view(name).substr(4), 10, id)) continue;
    if (id < 0 || id >= (1 << 16)) continue;
    NumaNode node;
    node.id = static_cast<int>(id);
    node.cpus = read_line(directory + "/" + name + "/cpulist");
    // "Node 0 MemTotal:  4417748 kB"
    std::string memory = read_field(directory + "/" + name + "/meminfo",
                                    "Node " + std::to_string(id) + " MemTotal:");
    std::int64_t kib = 0;
    if (parse(std::string_view(memory).substr(0, memory.find(' ')), 10, kib) && kib > 0) {
      node.memory_bytes = static_cast<std::uint64_t>(kib) * 1024;
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

int numa_node_of(const std::vector<NumaNode>& nodes, const std::string& cpus) {
  const std::vector<int> wanted = parse_cpulist(cpus);
  if (wanted.empty()) return -1;
  for (const NumaNode& node : nodes) {
    const std::vector<int> here = parse_cpulist(node.cpus);
    if (std::includes(here.begin(), here.end(), wanted.begin(), wanted.end())) return node.id;
  }
  return -1;
}

}  // namespace weft::sysfs
