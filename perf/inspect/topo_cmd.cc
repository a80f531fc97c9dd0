// `weft topo`: shows weft's view of this host, as a tree or as JSON.
#include <fmt/format.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "coll/jobs/report.h"
#include "perf/cli/commands.h"
#include "perf/cli/table.h"
#include "perf/inspect/topo_view.h"
#include "topo/base/environment.h"
#include "topo/discover.h"
#include "topo/near.h"
#include "transport/loaded/loaded.h"

namespace weft {

namespace {

struct Options {
  std::string json;
  bool ascii = false;
  std::optional<int> ppn;
  std::string sysfs = "/sys";
};

View look(const Options& options) {
  View view;
  if (options.sysfs != "/sys" && !std::filesystem::is_directory(options.sysfs)) {
    throw Error(fmt::format("--sysfs: '{}' is not a directory; name a copy of a host's /sys",
                            options.sysfs));
  }
  view.host = discover_host(options.sysfs);
  view.rails = choose_rails(view.host);
  if (is_set("WEFT_RAILS")) {
    for (Nic nic : view.host.nics) {
      nic.aside = "not in WEFT_RAILS";
      if (std::ranges::find(view.rails, nic.name, &Nic::name) == view.rails.end() &&
          nic.name != "lo")
        view.others.push_back(nic);
    }
  } else {
    view.others = choose_ports(view.host).others;
  }
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
  // Topology assigns rails to hypothetical ranks with their GPUs, bound to the GPUs' NUMA nodes.
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
  view.rails = topology.rails_by_slot(0);
  std::vector<std::string> rails, gpus;
  for (int local = 0; local < view.ppn; ++local) {
    const auto rail = static_cast<std::size_t>(topology.slot(topology.rail(local)));
    view.rail_of.push_back(static_cast<int>(rail));
    rails.push_back(rail < view.rails.size() ? view.rails[rail].pci : "");
  }
  for (const Gpu& gpu : visible) gpus.push_back(gpu.pci);
  view.gpu_of = nearest_gpus(rails, gpus, options.sysfs);
  for (int& gpu : view.gpu_of)  // convert to indices of the list above
    if (gpu >= 0)
      gpu = static_cast<int>(
          std::ranges::find(view.host.gpus, gpus[static_cast<std::size_t>(gpu)], &Gpu::pci) -
          view.host.gpus.begin());
  return view;
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
    if (auto rest = others(); !rest.empty())
      root.below.push_back({"no rails of the job (WEFT_RAILS chooses others)", std::move(rest)});
    root.below.push_back({"ranks", ranks()});
    if (!view_.libraries.empty()) root.below.push_back({"libraries", found()});
    return root;
  }

 private:
  // A NUMA node that the host does not list is treated as unknown.
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

  // The interface of an RDMA device is shown with the device.
  bool interface_of_rdma(const Nic& nic) const {
    return !nic.rdma && std::ranges::any_of(view_.host.nics, [&](const Nic& other) {
      return other.rdma && other.netdev == nic.name;
    });
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
      if (!interface_of_rdma(nic) && on(node, nic.numa_node)) {
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
      const Nic& rail = view_.rails[i];
      result.push_back({fmt::format("rail {}  {}", i, line(rail))});
      if (!rail.state.empty()) result.back().text += "  " + style_.paint("31", rail.state);
    }
    return result;
  }

  std::vector<Branch> others() const {
    std::size_t width = 0;
    for (const Nic& nic : view_.others) width = std::max(width, label(nic).size());
    std::vector<Branch> result;
    for (const Nic& nic : view_.others)
      if (!interface_of_rdma(nic))
        result.push_back({fmt::format("{:<{}}  {}", label(nic), width, nic.aside)});
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

// Unicode, unless disabled or not supported by the terminal.
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
  CLI::App* command =
      app.add_subcommand("topo", "show this host: NUMA nodes, GPUs, NICs, rails, and their users");
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
    if (!options->json.empty()) write_report(options->json, topo_json(view));
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
