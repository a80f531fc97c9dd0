// Declares and reads the flags of `weft explain` and `weft sim`. Does not know the model.
#include "perf/predict/model_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "coll/jobs/session.h"
#include "perf/cli/names.h"
#include "topo/base/status.h"

namespace weft {

void add_model_flags(CLI::App& command, ModelFlags& flags, const char* algorithm_about) {
  command.add_option("collective", flags.collective, collective_names())->required();
  const auto add = [&command](const char* flag, auto& value, const std::string& about) {
    CLI::Option* option = command.add_option(flag, value, about);
    if (value != std::decay_t<decltype(value)>{}) option->capture_default_str();
    return option;
  };
  const auto latency = [&add](const char* flag, double& us, const std::string& about) {
    const bool zero_is_default = us == 0;
    CLI::Option* option = add(flag, us, about);
    zero_is_default ? option->check(CLI::PositiveNumber) : option->check(CLI::NonNegativeNumber);
  };
  section(command, "The job");
  add("-N,--ranks", flags.ranks, "ranks in all")->check(CLI::Range(1, 65536));
  add("--hosts", flags.hosts, "hosts they are on, in equal blocks")->check(CLI::Range(1, 65536));
  add("--rails", flags.rails, "rails per host (default: one per rank of a host)")
      ->check(CLI::Range(1, 64));
  section(command, "The call");
  add("--bytes", flags.bytes, "the whole buffer: bytes, 16K, 64M, 1G");
  add("-d,--type", flags.type, dtype_names());
  add("--algo", flags.algorithm, algorithm_about);
  add("--root", flags.root, "root of a broadcast, reduce, gather or scatter")
      ->check(CLI::NonNegativeNumber);
  section(command, "The fabric");
  // Those that have no default of their own take the cost model's; `sim` has rails of 100 Gb/s.
  const bool models = flags.host_gbps == 0;
  const auto otherwise = [models](const char* about, const char* by_model) {
    return models ? fmt::format("{} (default: {})", about, by_model) : std::string(about);
  };
  add("--rail-gbps", flags.rail_gbps,
      fmt::format("rate of a rail in Gb/s (default: WEFT_RAIL_GBPS, else {})", models ? 10 : 100))
      ->check(CLI::PositiveNumber);
  latency("--rail-us", flags.rail_us, otherwise("latency of a rail in us", "5"));
  add("--host-gbps", flags.host_gbps,
      otherwise("bandwidth between two ranks of a host in Gb/s", "80"))
      ->check(CLI::PositiveNumber);
  latency("--host-us", flags.host_us, otherwise("latency inside a host in us", "0.5"));
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

}  // namespace weft
