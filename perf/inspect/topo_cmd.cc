// `weft topo`: shows this host as weft sees it, as a tree for people or as JSON for programs.
#include <fmt/format.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "coll/jobs/report.h"
#include "perf/cli/commands.h"
#include "perf/cli/table.h"
#include "topo/discover.h"
#include "topo/near.h"
#include "transport/loaded/loaded.h"

namespace weft {

namespace {

using Json = nlohmann::ordered_json;  // the keys in the order they are written here

struct Options {
  std::string json;
  bool ascii = false;
  std::optional<int> ppn;
  std::string sysfs = "/sys";
};

// Everything that is printed, in either form.
struct View {
  HostDescription host;
  std::optional<Place> place;  // none for a recorded tree
  std::string tree;            // the recorded tree, or empty
  std::vector<Nic> rails;
  std::vector<LibraryState> libraries;  // of this host
  int ppn = 1;
  // Per local rank: its rail, the NUMA node of its GPU or -1, the index of its GPU or -1.
  std::vector<int> rail_of, node_of, gpu_of;
};

View look(const Options& options) {
  View view;
  if (options.sysfs != "/sys" && !std::filesystem::is_directory(options.sysfs)) {
    throw Error(
        fmt::format("--sysfs: '{}' is no directory; name a copy of a host's /sys", options.sysfs));
  }
  view.host = discover_host(options.sysfs);
  view.rails = choose_rails(view.host);
  if (options.sysfs == "/sys") {
    view.place = discover_place();
    view.libraries = libraries();
  } else {
    view.tree = options.sysfs;
  }
  const std::vector<Gpu> visible = visible_gpus(
      view.host.gpus, view.tree.empty() ? std::getenv("CUDA_VISIBLE_DEVICES") : nullptr);
  const int ngpus = static_cast<int>((visible.empty() ? view.host.gpus : visible).size());
  view.ppn = options.ppn.value_or(ngpus > 0 ? ngpus : 8);
  // Topology itself says where ranks would go that have their GPU, and are bound to its NUMA node.
  std::vector<Place> places(view.ppn);
  for (int local = 0; local < view.ppn; ++local) {
    places[local].rails = view.rails;
    const int gpu = ngpus > 0 ? static_cast<int>(std::int64_t{local} * ngpus / view.ppn) : -1;
    if (gpu >= 0) {
      const Gpu& own = (visible.empty() ? view.host.gpus : visible)[static_cast<std::size_t>(gpu)];
      places[local].numa_node = own.numa_node;
      set_gpu(places[local], own.pci, options.sysfs);
    }
    view.node_of.push_back(places[local].numa_node);
  }
  const Topology topology(std::move(places));
  std::vector<std::string> rails, gpus;
  for (int local = 0; local < view.ppn; ++local) {
    const auto rail = static_cast<std::size_t>(topology.rail(local));
    view.rail_of.push_back(topology.rail(local));
    rails.push_back(rail < view.rails.size() ? view.rails[rail].pci : "");
  }
  for (const Gpu& gpu : visible) gpus.push_back(gpu.pci);
  view.gpu_of = nearest_gpus(rails, gpus, options.sysfs);
  for (int& gpu : view.gpu_of)  // as they are listed above
    if (gpu >= 0)
      gpu = static_cast<int>(
          std::ranges::find(view.host.gpus, gpus[static_cast<std::size_t>(gpu)], &Gpu::pci) -
          view.host.gpus.begin());
  return view;
}

// GPUs by their index, one group per domain; those that nothing joins are in none.
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

// --- JSON ---

Json or_null(int numa_node) { return numa_node < 0 ? Json() : Json(numa_node); }
Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json to_json(const Nic& nic) {
  return {{"name", nic.name},
          {"rdma", nic.rdma},
          {"netdev", or_null(nic.netdev)},
          {"pci", or_null(nic.pci)},
          {"numa_node", or_null(nic.numa_node)},
          {"rate_gbps", nic.rate_gbps > 0 ? Json(nic.rate_gbps) : Json()},
          {"address", or_null(nic.address)},
          {"up", nic.up}};
}

Json to_json(const View& view) {
  const HostDescription& host = view.host;
  Json numa = Json::array(), nics = Json::array(), gpus = Json::array(), rails = Json::array();
  Json domains = Json::array(), ranks = Json::array();
  for (const NumaNode& node : host.numa) {
    numa.push_back({{"id", node.id},
                    {"cpus", node.cpus},
                    {"memory_bytes", node.memory_bytes > 0 ? Json(node.memory_bytes) : Json()}});
  }
  for (const Nic& nic : host.nics) nics.push_back(to_json(nic));
  for (const Gpu& gpu : host.gpus) {
    gpus.push_back({{"name", gpu.name}, {"pci", gpu.pci}, {"numa_node", or_null(gpu.numa_node)}});
  }
  for (const Nic& nic : view.rails) {
    Json rail = to_json(nic);
    rail["rail"] = rails.size();
    rails.push_back(std::move(rail));
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
  return {{"schema", "weft.topo/1"},
          {"hostname", or_null(host.hostname)},
          {"host", view.place ? Json(view.place->host) : Json()},
          {"machine", view.place ? Json(view.place->machine) : Json()},
          {"cpu_model", or_null(host.cpu_model)},
          {"cores", host.cores},
          {"numa_nodes", std::move(numa)},
          {"nics", std::move(nics)},
          {"gpus", std::move(gpus)},
          {"rails", std::move(rails)},
          {"domains", std::move(domains)},
          {"libraries", std::move(found)},
          {"ranks_per_host", view.ppn},
          {"ranks", std::move(ranks)}};
}

// --- the tree ---

struct Branch {
  std::string text;
  std::vector<Branch> below = {};
};

struct Style {
  bool ascii = false, colour = false;

  std::string paint(const char* code, const std::string& text) const {
    return colour && !text.empty() ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  }
  std::string bold(const std::string& text) const { return paint("1", text); }
  std::string dim(const std::string& text) const { return paint("2", text); }
  const char* dot() const { return ascii ? ", " : " · "; }
  const char* arrow() const { return ascii ? "->" : "→"; }
};

void print(const Branch& branch, const Style& style, const std::string& indent) {
  const char* const fork = style.ascii ? "|-- " : "├─ ";
  const char* const corner = style.ascii ? "`-- " : "└─ ";
  const char* const bar = style.ascii ? "|   " : "│  ";
  const char* const blank = style.ascii ? "    " : "   ";
  for (std::size_t i = 0; i < branch.below.size(); ++i) {
    const bool last = i + 1 == branch.below.size();
    fmt::print("{}{}\n", style.dim(indent + (last ? corner : fork)), branch.below[i].text);
    print(branch.below[i], style, indent + (last ? blank : bar));
  }
}

std::string memory(std::uint64_t bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  if (bytes == 0) return "memory unknown";
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

std::string rate(double gbps) {
  if (gbps <= 0) return "rate unknown";
  return gbps < 1 ? fmt::format("{:g} Mb/s", gbps * 1000) : fmt::format("{:g} Gb/s", gbps);
}

std::string range(const char* one, const char* many, int first, int last) {
  return first == last ? fmt::format("{} {}", one, first)
                       : fmt::format("{} {}-{}", many, first, last);
}

// "0-3,6"
std::string indices(const std::vector<int>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t k = i;
    while (k + 1 < values.size() && values[k + 1] == values[k] + 1) ++k;
    text += fmt::format("{}{}", i == 0 ? "" : ",", values[i]);
    if (k > i) text += fmt::format("-{}", values[k]);
    i = k + 1;
  }
  return text;
}

// "mlx5_0 (eth0)"
std::string label(const Nic& nic) {
  return nic.netdev.empty() || nic.netdev == nic.name
             ? nic.name
             : fmt::format("{} ({})", nic.name, nic.netdev);
}

class TreeView {
 public:
  TreeView(const View& view, const Style& style) : view_(view), style_(style) {
    for (const Nic& nic : view.host.nics) {
      name_width_ = std::max(name_width_, label(nic).size());
      rate_width_ = std::max(rate_width_, rate(nic.rate_gbps).size());
      address_width_ = std::max(address_width_, nic.address.size());
    }
  }

  Branch root() const {
    const HostDescription& host = view_.host;
    const std::string title =
        view_.tree.empty() ? "host " + style_.bold(host.hostname) : "recorded tree " + view_.tree;
    Branch root{title};
    if (view_.place && !view_.place->host.starts_with(host.hostname + "#")) {
      root.text += fmt::format(" as '{}'", view_.place->host);
    }
    if (!host.cpu_model.empty()) root.text += style_.dot() + host.cpu_model;
    root.text += fmt::format("{}{} core{}", style_.dot(), host.cores, host.cores == 1 ? "" : "s");
    for (const NumaNode& node : host.numa) {
      root.below.push_back({fmt::format("NUMA node {}{}CPUs {}{}{}", node.id, style_.dot(),
                                        node.cpus.empty() ? "none" : node.cpus, style_.dot(),
                                        memory(node.memory_bytes)),
                            devices(node.id)});
    }
    if (auto rest = devices(-1); !rest.empty()) {
      root.below.push_back({"on no NUMA node", std::move(rest)});
    }
    root.below.push_back({"high-speed domains", domains()});
    root.below.push_back({view_.rails.empty() ? "rails: none" : "rails", rails()});
    root.below.push_back({"ranks", ranks()});
    if (!view_.libraries.empty()) root.below.push_back({"libraries", found()});
    return root;
  }

 private:
  // A node that the host does not list counts as none.
  bool on(int node, int numa_node) const {
    const auto& numa = view_.host.numa;
    const bool listed = std::any_of(numa.begin(), numa.end(),
                                    [&](const NumaNode& it) { return it.id == numa_node; });
    return listed ? numa_node == node : node == -1;
  }

  std::string line(const Nic& nic) const {
    return fmt::format("{}  {}  {:<{}}  {:<{}}  {}",
                       style_.bold(fmt::format("{:<{}}", label(nic), name_width_)),
                       nic.up ? style_.paint("32", "up  ") : style_.paint("31", "down"),
                       rate(nic.rate_gbps), rate_width_, nic.address, address_width_,
                       style_.dim(nic.pci.empty() ? "virtual" : nic.pci));
  }

  std::vector<Branch> devices(int node) const {
    const HostDescription& host = view_.host;
    std::vector<Branch> result;
    for (std::size_t i = 0; i < host.gpus.size(); ++i) {
      const Gpu& gpu = host.gpus[i];
      if (!on(node, gpu.numa_node)) continue;
      result.push_back(
          {fmt::format("GPU {}  {}  {}", i, style_.bold(gpu.name), style_.dim(gpu.pci))});
    }
    for (const Nic& nic : host.nics) {
      // The interface behind an RDMA device is shown with it.
      const bool shown =
          !nic.rdma && std::any_of(host.nics.begin(), host.nics.end(), [&](const Nic& other) {
            return other.rdma && other.netdev == nic.name;
          });
      if (!shown && on(node, nic.numa_node)) {
        result.push_back({fmt::format("{}  {}", nic.rdma ? "RDMA " : "NIC  ", line(nic))});
      }
    }
    return result;
  }

  std::vector<Branch> domains() const {
    const auto& gpus = view_.host.gpus;
    std::vector<Branch> result;
    result.push_back({range("local rank", "local ranks", 0, view_.ppn - 1) + ": shared memory"});
    for (const auto& members : gpu_domains(gpus)) {
      result.push_back({fmt::format("GPUs {}: {}", indices(members), gpu_link(gpus[members[0]]))});
    }
    std::vector<int> alone;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (gpus[i].domain < 0) alone.push_back(static_cast<int>(i));
    }
    if (!alone.empty()) {
      result.push_back({fmt::format("GPU{} {}: PCIe, no faster link found",
                                    alone.size() == 1 ? "" : "s", indices(alone))});
    }
    return result;
  }

  std::vector<Branch> rails() const {
    std::vector<Branch> result;
    for (std::size_t i = 0; i < view_.rails.size(); ++i) {
      result.push_back({fmt::format("rail {}  {}", i, line(view_.rails[i]))});
    }
    return result;
  }

  std::vector<Branch> found() const {
    std::vector<Branch> result;
    for (const LibraryState& l : view_.libraries)
      result.push_back({l.title + ": " + (l.why_not.empty() ? l.file : "none: " + l.why_not)});
    return result;
  }

  std::vector<Branch> ranks() const {
    std::vector<Branch> result;
    for (int first = 0, last; first < view_.ppn; first = last + 1) {
      const int rail = view_.rail_of[first];
      const int node = view_.node_of[first];
      for (last = first; last + 1 < view_.ppn && view_.rail_of[last + 1] == rail &&
                         view_.node_of[last + 1] == node;) {
        ++last;
      }
      std::string text =
          fmt::format("{} of {} {} rail {}", range("local rank", "local ranks", first, last),
                      view_.ppn, style_.arrow(), rail);
      if (rail < static_cast<int>(view_.rails.size())) {
        const Nic& nic = view_.rails[rail];
        text += fmt::format(" ({})", nic.name);
        if (node >= 0 && nic.numa_node >= 0 && node != nic.numa_node) {
          text += style_.paint("33", fmt::format(", from NUMA node {} to {}", node, nic.numa_node));
        }
      }
      std::vector<int> gpus(view_.gpu_of.begin() + first, view_.gpu_of.begin() + last + 1);
      std::erase(gpus, -1);
      std::ranges::sort(gpus);
      gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
      if (!gpus.empty())
        text += fmt::format(", GPU{} {}", gpus.size() == 1 ? "" : "s", indices(gpus));
      result.push_back({std::move(text)});
    }
    return result;
  }

  const View& view_;
  const Style& style_;
  std::size_t name_width_ = 0, rate_width_ = 0, address_width_ = 0;
};

// Unicode, unless told otherwise or on a terminal that would not show it.
Style style_for(const Options& options) {
  Style style;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  style.colour = colours();
  std::setlocale(LC_CTYPE, "");
  style.ascii = options.ascii || (terminal && std::string(nl_langinfo(CODESET)) != "UTF-8");
  return style;
}

}  // namespace

void add_topo(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "topo", "show this host: NUMA nodes, GPUs, NICs, rails, and who uses them");
  add_json_option(*command, options->json, "weft.topo/1");
  command->add_flag("--ascii", options->ascii, "draw the tree without Unicode characters");
  command
      ->add_option("--ppn", options->ppn,
                   "ranks per host, to show their rails (default: one per GPU, else 8)")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--sysfs", options->sysfs, "read a recorded copy of /sys instead of this host's")
      ->type_name("ROOT");
  command->footer(
      "WEFT_RAILS=mlx5_0,mlx5_1 or rail0:0.4,rail1:0.4 (with a rate in Gb/s) chooses the rails; "
      "WEFT_HOST_ID=name sets the identity of the host.\nExample: weft topo --ppn 8");
  command->callback([options, &exit_code] {
    check_report(options->json);
    const View view = look(*options);
    if (!options->json.empty())
      write_report(options->json,
                   to_json(view).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    if (options->json != "-") {
      const Style style = style_for(*options);
      const Branch root = TreeView(view, style).root();
      fmt::print("{}\n", root.text);
      print(root, style, "");
    }
    exit_code = kExitOk;
  });
}

}  // namespace weft
