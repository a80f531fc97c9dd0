// Reads how long CPU quotas of this process's cgroup and the cgroup's ancestors stopped threads.
// Source: cpu.stat (Documentation/admin-guide/cgroup-v2, cgroup-v1 and sched-bwc of the kernel).
#include <algorithm>
#include <fstream>
#include <sstream>

#include "perf/validate/facts/read_facts.h"

namespace weft::fabric {
namespace {

// Throttled seconds from a cgroup's cpu.stat; 0 if it has none.
double throttled_in(const std::string& folder) {
  std::ifstream file(folder + "/cpu.stat");
  std::string key;
  double value = 0;
  while (file >> key >> value) {
    if (key == "throttled_usec") return value * 1e-6;
    if (key == "throttled_time") return value * 1e-9;
  }
  return 0;
}

// Returns the hierarchy's folder if `controllers`, from a line like "4:cpu,cpuacct:/job/step",
// include `cpu`, or are empty as in "0::/job/step" (cgroup v2); otherwise "".
std::string hierarchy_of(const std::string& controllers, const Sources& sources) {
  const std::string root = sources.sysfs + "/fs/cgroup";
  if (controllers.empty()) return root;
  std::istringstream in(controllers);
  for (std::string one; std::getline(in, one, ',');)
    if (one == "cpu") return root + "/" + controllers;
  return "";
}

}  // namespace

double throttled_s(const Sources& sources) {
  std::ifstream file(sources.proc + "/self/cgroup");
  double most = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string root = hierarchy_of(line.substr(first + 1, second - first - 1), sources);
    if (root.empty()) continue;
    std::string group = line.substr(second + 1);
    for (;;) {
      most = std::max(most, throttled_in(root + group));
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return most;
}

}  // namespace weft::fabric
