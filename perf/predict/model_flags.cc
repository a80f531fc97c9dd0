// Declares and reads the flags of `weft explain` and `weft sim`. Runs nothing.
#include "perf/predict/model_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "coll/jobs/session.h"
#include "coll/runtime/calibrate.h"
#include "perf/cli/names.h"
#include "perf/cli/parse_errors.h"
#include "perf/predict/bound.h"
#include "topo/base/status.h"

namespace weft {

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
  section(command, "The call");
  add("--bytes", flags.bytes, "the whole buffer: bytes, 16K, 64M, 1G");
  add("-d,--type", flags.type, dtype_names());
  add("--algo", flags.algorithm, algorithm_about);
  add("--root", flags.root, "root of a broadcast, reduce, gather or scatter")
      ->check(CLI::NonNegativeNumber);
  section(command, "The fabric");
  add("--rail-gbps", flags.rail_gbps,
      fmt::format("rate of a rail in Gb/s (default: WEFT_RAIL_GBPS, else {:g})",
                  SimFabricOptions{}.rail.gbps))
      ->check(CLI::PositiveNumber);
  add("--rail-us", flags.rail_us, "latency of a rail in us")->check(CLI::NonNegativeNumber);
  add("--host-gbps", flags.host_gbps, "bandwidth between two ranks of a host in Gb/s")
      ->check(CLI::PositiveNumber);
  add("--host-us", flags.host_us, "latency inside a host in us")->check(CLI::NonNegativeNumber);
  add("--wire", flags.wire, "rdma or tcp: headers on a rail (sim: cores copy what tcp brings)");
}

void refuse_ignored(const CLI::App& command, const ModelFlags& flags) {
  const Collective c = collective_of(flags);
  if (!rooted(c)) refuse_given(command, {"--root"}, fmt::format("{} has no root", name(c)));
  if (c == Collective::kBarrier)
    refuse_given(command, {"--bytes", "--type"}, "a barrier moves no data");
  if (flags.hosts == 1)
    refuse_given(command, {"--rails", "--rail-gbps", "--rail-us", "--wire"},
                 "one host (--hosts) uses no rail");
}

Collective collective_of(const ModelFlags& flags) { return collective_named(flags.collective); }

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
  return shape_of(flags.ranks, flags.hosts, rank, flags.root);
}

SimLink rail_of(const ModelFlags& flags) {
  const double declared = declared_rail_gbps(flags.rail_gbps);
  return {flags.rail_us, declared > 0 ? declared : SimFabricOptions{}.rail.gbps};
}

SimLink host_link_of(const ModelFlags& flags) { return {flags.host_us, flags.host_gbps}; }

double payload_share_of(const ModelFlags& flags) {
  if (flags.wire != "rdma" && flags.wire != "tcp")
    throw Error(fmt::format("--wire {}: give rdma or tcp", flags.wire));
  return flags.wire == "tcp" ? kTcpPayloadShare : kRocePayloadShare;
}

CostModel model_of(const ModelFlags& flags) {
  const SimLink rail = rail_of(flags), host = host_link_of(flags);
  CostModel model;
  model.rail.alpha_us = rail.latency_us;
  model.rail.us_per_byte = 8 / (rail.gbps * payload_share_of(flags) * 1e3);
  model.host.alpha_us = host.latency_us;
  model.host.us_per_byte = 8 / (host.gbps * 1e3);
  model.rails_per_host = flags.rails;
  return model;
}

}  // namespace weft
