// Declares and reads the flags of `weft explain` and `weft sim`. Runs nothing.
#include "perf/predict/model_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coll/jobs/session.h"
#include "coll/select/slow_ports.h"
#include "coll/sim/simulate.h"
#include "perf/cli/bytes.h"
#include "perf/cli/names.h"
#include "perf/cli/parse_errors.h"
#include "topo/base/status.h"

namespace weft {
namespace {

DType type_of(const ModelFlags& flags) {
  const auto types = dtypes_named("--type", flags.type);
  if (types.size() != 1) throw Error("--type all: name one type");
  return types[0];
}

Shape shape_of(const ModelFlags& flags, Rank rank) {
  if (flags.hosts > flags.ranks)
    throw Error(fmt::format("--hosts {} with --ranks {}: every host needs at least one rank",
                            flags.hosts, flags.ranks));
  for (const auto& [flag, value] : {std::pair{"--rank", rank}, {"--root", flags.root}})
    if (value >= flags.ranks)
      throw Error(fmt::format("{} {}: the ranks are 0 to {}", flag, value, flags.ranks - 1));
  return weft::shape_of(flags.ranks, flags.hosts, rank, flags.root);
}

// If all ports of a rail have the same rate, slows the rail: load cannot shift between hosts.
void add_slow_ports(ModelCall& job, const std::vector<std::string>& texts) {
  PortNames names{std::vector<std::string>(job.shape.hosts.size()), {}};
  for (int rail = 0; rail < job.rails; ++rail) names.rails.push_back(rail);
  std::vector<PortRate> ports =
      parse_slow_ports("--slow-port", fmt::format("{}", fmt::join(texts, ",")), names);
  job.fabric.rail_scale =
      take_rail_rates(ports, static_cast<int>(job.shape.hosts.size()), job.rails);
  weigh_rails(job);
  for (int rail = 0; rail < job.rails; ++rail)
    if (std::ranges::count_if(ports, [rail](const PortRate& p) {
          return p.rail == rail && p.rate == 0;
        }) == std::ssize(job.shape.hosts))
      throw Error(fmt::format(
          "--slow-port: rail {} is dead on all hosts; give one rail less (--rails)", rail));
  for (const PortRate& p : ports) job.fabric.slow_ports.push_back({p.host, p.rail, p.rate});
  job.shape.slow_ports = ports_of_ranks(ports, job.shape.hosts, [&](Rank r) {
    return job.fabric.rail_of_rank[static_cast<std::size_t>(r)];
  });
  for (const SlowPort& p : job.shape.slow_ports) {
    const auto dead = std::ranges::count_if(
        job.shape.slow_ports, [&](const SlowPort& o) { return o.host == p.host && o.rate == 0; });
    if (dead == std::ssize(job.shape.hosts[static_cast<std::size_t>(p.host)]))
      throw Error(fmt::format(
          "--slow-port: all ports of host {} are dead, so nothing can reach it; leave one",
          p.host));
  }
}

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags, const char* algorithm_about) {
  command.add_option("collective", flags.collective, collective_names())->required();
  const auto add = [&command](const char* flag, auto& value, const std::string& about) {
    CLI::Option* option = command.add_option(flag, value, about);
    if (value != std::decay_t<decltype(value)>{}) option->capture_default_str();
    return option;
  };
  section(command, "The job");
  add("-N,--ranks", flags.ranks, "ranks in all")->check(CLI::Range(1, 65536));
  add("--hosts", flags.hosts,
      "hosts they are on, in blocks; the first have one more where it does not divide")
      ->check(CLI::Range(1, 65536));
  add("--rails", flags.rails, "rails per host (default: one per rank of a host)")
      ->check(CLI::Range(1, 64));
  add("--hosts-per-leaf", flags.hosts_per_leaf,
      "hosts whose rails meet in one leaf switch, in blocks (default: all)")
      ->check(CLI::Range(1, 65536));
  add("--uplink-gbps", flags.uplink_gbps,
      "rate of a leaf switch to the others, each way (default: never short)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--slow-port", flags.slow_ports,
                  "a fraction of a port's rate, e.g. 3:1=0.5; 3:1=0: dead; 3:* a host's, *:1 a "
                  "rail's; repeatable")
      ->type_name("HOST:RAIL=FRACTION");
  section(command, "The call");
  add("--bytes", flags.bytes, "the whole buffer: bytes, 16K, 64M, 1G");
  add("-d,--type", flags.type, dtype_names());
  add("--algo", flags.algorithm, algorithm_about);
  add("--root", flags.root, "root of a broadcast, reduce, gather or scatter")
      ->check(CLI::NonNegativeNumber);
  add_machine_options(command, flags.machine);
}

void refuse_ignored(const CLI::App& command, const ModelFlags& flags) {
  const Collective c = collective_of(flags);
  if (!rooted(c)) refuse_given(command, {"--root"}, fmt::format("{} has no root", name(c)));
  if (c == Collective::kBarrier)
    refuse_given(command, {"--bytes", "--type"}, "a barrier moves no data");
  if (flags.hosts == 1)
    refuse_given(command,
                 {"--rails", "--hosts-per-leaf", "--uplink-gbps", "--slow-port", "--rail-gbps",
                  "--rail-us", "--wire", "--spine-gbps", "--spine-us"},
                 "one host (--hosts) uses no rail");
  if (flags.hosts_per_leaf == 0)
    refuse_given(command, {"--uplink-gbps"}, "all hosts are on one leaf without --hosts-per-leaf");
}

Collective collective_of(const ModelFlags& flags) { return collective_named(flags.collective); }

ModelCall call_of(const ModelFlags& flags, Rank rank) {
  ModelCall call;
  call.collective = collective_of(flags);
  call.type = type_of(flags);
  call.shape = shape_of(flags, rank);
  const bool blocks = by_blocks(call.collective);
  const std::size_t unit =
      size_of(call.type) * (blocks ? static_cast<std::size_t>(flags.ranks) : 1);
  const std::uint64_t bytes =
      call.collective == Collective::kBarrier ? 0 : parse_bytes("--bytes", flags.bytes);
  call.count = bytes / unit;
  call.bytes = call.count * unit;
  if (bytes > 0 && call.count == 0)
    throw Error(fmt::format("--bytes {}: less than one {} for each block; give at least {}",
                            flags.bytes, name(call.type), unit));
  call.rails = flags.rails > 0 ? flags.rails : static_cast<int>(call.shape.hosts[0].size());
  call.machine = machine_of(flags.machine);
  call.fabric = fabric_of(call.shape, call.rails, call.machine);
  for (int h = 0; flags.hosts_per_leaf > 0 && h < flags.hosts; ++h)
    call.shape.leaf.push_back(h / flags.hosts_per_leaf);
  call.fabric.leaf_of_host = call.shape.leaf;
  call.fabric.uplink_gbps = flags.uplink_gbps;
  add_slow_ports(call, flags.slow_ports);
  set_model(call, call.shape.rail_weight.empty() ? flags.rails : call.rails);
  return call;
}

void weigh_rails(ModelCall& call) {
  const std::vector<double>& scale = call.fabric.rail_scale;
  call.shape.rail_weight.clear();
  if (std::ranges::adjacent_find(scale, std::not_equal_to<>()) == scale.end()) return;
  for (std::size_t l = 0; l < call.shape.hosts[0].size(); ++l)
    call.shape.rail_weight.push_back(scale[l % scale.size()]);
}

void set_model(ModelCall& call, int rails) {
  call.model = model_of(call.fabric);
  // A simulated rank sends through its own port, so a scatter has the same bound as a gather.
  const Collective as =
      call.collective == Collective::kScatter ? Collective::kGather : call.collective;
  CostModel own_ports = call.model;
  own_ports.rails_per_host = rails;
  call.bound = bound_of(as, call.shape, call.bytes, own_ports);
}

std::string where(const ModelCall& call) {
  const std::size_t hosts = call.shape.hosts.size();
  const std::string on =
      fmt::format("{} ranks on {} {}", call.shape.nranks, hosts, hosts == 1 ? "host" : "hosts");
  if (hosts == 1) return on;
  std::string text = fmt::format("{} x {} {}", on, call.rails, call.rails == 1 ? "rail" : "rails");
  if (const auto& leaf = call.fabric.leaf_of_host; !leaf.empty())
    text += fmt::format(", {} {}", leaf.back() + 1, leaf.back() == 0 ? "leaf" : "leaves");
  return text;
}

std::string unequal_hosts_in_words(const ModelCall& call) {
  std::map<std::size_t, int, std::greater<>> hosts_with;
  for (const auto& ranks : call.shape.hosts) ++hosts_with[ranks.size()];
  if (hosts_with.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [ranks, hosts] : hosts_with)
    parts.push_back(
        fmt::format("{} {} {} ranks", hosts, hosts == 1 ? "host has" : "hosts have", ranks));
  return fmt::format("the blocks of ranks are unequal: {}\n", fmt::join(parts, ", "));
}

std::string above_bound_in_words(double of_bound, const char* what) {
  constexpr double kRounding = 1e-6;
  if (of_bound <= 1 + kRounding) return "";
  return fmt::format("of_bound is above 1: {}\n", what);
}

}  // namespace weft
