// `weft topo --json`: writes the content of `weft topo` as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "perf/inspect/topo_view.h"

namespace weft {

std::vector<std::vector<int>> gpu_domains(const std::vector<Gpu>& gpus) {
  std::vector<std::vector<int>> domains;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].domain < 0) continue;
    domains.resize(std::max(domains.size(), static_cast<std::size_t>(gpus[i].domain) + 1));
    domains[gpus[i].domain].push_back(static_cast<int>(i));
  }
  return domains;
}

std::string gpu_link(const Gpu& gpu) { return gpu.name.starts_with("AMD") ? "xGMI" : "NVLink"; }

namespace {

using Json = nlohmann::ordered_json;  // keeps the order of keys

Json or_null(int numa_node) { return numa_node < 0 ? Json() : Json(numa_node); }
Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json nic_json(const Nic& nic) {
  return {{"name", nic.name},
          {"rdma", nic.rdma},
          {"netdev", or_null(nic.netdev)},
          {"pci", or_null(nic.pci)},
          {"numa_node", or_null(nic.numa_node)},
          {"rate_gbps", nic.rate_gbps > 0 ? Json(nic.rate_gbps) : Json()},
          {"address", or_null(nic.address)},
          {"up", nic.up},
          {"state", or_null(nic.state)}};
}

}  // namespace

std::string topo_json(const View& view) {
  const HostDescription& host = view.host;
  Json numa = Json::array(), nics = Json::array(), gpus = Json::array(), rails = Json::array();
  Json domains = Json::array(), ranks = Json::array(), others = Json::array();
  for (const NumaNode& node : host.numa) {
    numa.push_back({{"id", node.id},
                    {"cpus", node.cpus},
                    {"memory_bytes", node.memory_bytes > 0 ? Json(node.memory_bytes) : Json()}});
  }
  for (const Nic& nic : host.nics) nics.push_back(nic_json(nic));
  for (const Gpu& gpu : host.gpus) {
    gpus.push_back({{"name", gpu.name}, {"pci", gpu.pci}, {"numa_node", or_null(gpu.numa_node)}});
  }
  for (const Nic& nic : view.rails) {
    Json rail = nic_json(nic);
    rail["rail"] = rails.size();
    rails.push_back(std::move(rail));
  }
  for (const Nic& nic : view.others) {
    Json other = nic_json(nic);
    other["reason"] = nic.aside;
    others.push_back(std::move(other));
  }
  Json locals = Json::array();
  for (int local = 0; local < view.ppn; ++local) {
    locals.push_back(local);
    ranks.push_back({{"local_rank", local},
                     {"rail", view.rail_of[local]},
                     {"gpu", or_null(view.gpu_of[local])}});
  }
  domains.push_back({{"link", "shared memory"}, {"local_ranks", std::move(locals)}});
  for (const auto& members : gpu_domains(host.gpus)) {
    domains.push_back({{"link", gpu_link(host.gpus[members[0]])}, {"gpus", members}});
  }
  Json found = Json::object();
  for (const LibraryState& l : view.libraries)
    found[l.title] = l.why_not.empty() ? Json(l.file) : Json();
  const Json topo = {{"schema", "weft.topo/1"},
                     {"hostname", or_null(host.hostname)},
                     {"host", view.place ? Json(view.place->host) : Json()},
                     {"machine", view.place ? Json(view.place->machine) : Json()},
                     {"cpu_model", or_null(host.cpu_model)},
                     {"cores", host.cores},
                     {"numa_nodes", std::move(numa)},
                     {"nics", std::move(nics)},
                     {"gpus", std::move(gpus)},
                     {"rails", std::move(rails)},
                     {"no_rails", std::move(others)},
                     {"domains", std::move(domains)},
                     {"libraries", std::move(found)},
                     {"ranks_per_host", view.ppn},
                     {"ranks", std::move(ranks)}};
  return topo.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft
