// A small sysfs tree in a temporary folder, for tests of discovery; the destructor removes it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace weft {

class FakeSysfs {
 public:
  FakeSysfs() {
    std::string path = (std::filesystem::temp_directory_path() / "weft_sysfs_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "no temporary folder at " << path;
    root_ = path;
  }
  ~FakeSysfs() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

  const std::string& root() const { return root_; }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  // A file that can be opened but not read, like sysfs files that fail with EINVAL.
  void write_unreadable(const std::string& path) const {
    std::filesystem::create_directories(root_ + "/" + path);
  }

  void link(const std::string& path, const std::string& target) const {
    const std::filesystem::path link = root_ + "/" + path;
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_directory_symlink(
        std::filesystem::relative(root_ + "/" + target, link.parent_path()), link);
  }

  void add_numa_node(int id, const std::string& cpus, const std::string& meminfo) const {
    const std::string directory = "devices/system/node/node" + std::to_string(id);
    write(directory + "/cpulist", cpus);
    if (!meminfo.empty()) write(directory + "/meminfo", meminfo);
  }

  void add_pci(const std::string& pci, const std::string& pci_class, const std::string& vendor,
               const std::string& device, const std::string& numa_node) const {
    const std::string directory = function(pci);
    write(directory + "/class", pci_class);
    write(directory + "/vendor", vendor);
    write(directory + "/device", device);
    if (!numa_node.empty()) write(directory + "/numa_node", numa_node);
    link("bus/pci/devices/" + pci, directory);
  }

  // Virtual if `pci` is empty.
  void add_netdev(const std::string& name, const std::string& pci, const std::string& speed,
                  const std::string& operstate, const std::string& flags = "0x1003") const {
    const std::string directory =
        pci.empty() ? "devices/virtual/net/" + name : function(pci) + "/net/" + name;
    write(directory + "/operstate", operstate);
    write(directory + "/flags", flags);
    if (!speed.empty()) write(directory + "/speed", speed);
    if (!pci.empty()) link(directory + "/device", function(pci));
    link("class/net/" + name, directory);
  }

  void add_rdma(const std::string& name, const std::string& pci, const std::string& port,
                const std::string& state, const std::string& rate) const {
    const std::string directory = function(pci) + "/infiniband/" + name;
    std::filesystem::create_directories(root_ + "/" + directory);
    const std::string ports = directory + "/ports/" + port;
    if (!state.empty()) write(ports + "/state", state);
    if (!rate.empty()) write(ports + "/rate", rate);
    if (!std::filesystem::exists(root_ + "/class/infiniband/" + name)) {
      link(directory + "/device", function(pci));
      link("class/infiniband/" + name, directory);
    }
  }

  static std::string function(const std::string& pci) { return "devices/pci0000:00/" + pci; }

 private:
  std::string root_;
};

// A host of two NUMA nodes with two RDMA devices, whose names are not in PCI order, two GPUs, a
// management controller's VGA, and interfaces in unusual states.
inline void add_two_rail_host(const FakeSysfs& tree) {
  tree.add_numa_node(0, "0-3", "Node 0 MemTotal:       2048 kB\nNode 0 MemFree: 12 kB");
  tree.add_numa_node(1, "4-7", "");
  tree.write("devices/system/cpu/online", "0-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string first = std::to_string(cpu / 2 * 2), second = std::to_string(cpu / 2 * 2 + 1);
    tree.write("devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
               first + "-" + second);
  }
  tree.add_pci("0000:9a:00.0", "0x020000", "0x15b3", "0x1021", "1");
  tree.add_rdma("mlx5_0", "0000:9a:00.0", "1", "4: ACTIVE", "400 Gb/sec (4X NDR)");
  tree.add_netdev("ens9", "0000:9a:00.0", "400000", "up");
  tree.write(FakeSysfs::function("0000:9a:00.0") + "/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0",
             "ens9");
  tree.add_pci("0000:1b:00.0", "0x020700", "0x15b3", "0x1021", "0");
  tree.add_rdma("mlx5_1", "0000:1b:00.0", "1", "4: ACTIVE", "200 Gb/sec (4X HDR)");
  tree.add_pci("0000:0a:00.0", "0x030200", "0x10de", "0x2335", "0");
  tree.add_pci("0000:3b:00.0", "0x030200", "0x10de", "0x2335", "1");
  tree.add_pci("0000:03:00.0", "0x030000", "0x1a03", "0x2000", "0");
  tree.add_pci("0000:02:00.0", "0x020000", "0x8086", "0x1521", "-1");
  tree.add_netdev("eno1", "0000:02:00.0", "1000", "up");
  tree.add_netdev("lo", "", "", "unknown", "0x9");
}

}  // namespace weft
