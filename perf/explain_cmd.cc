// `weft explain COLLECTIVE`: which algorithm and why, what it should take, and its steps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "perf/bytes.h"
#include "perf/commands.h"
#include "perf/explain.h"
#include "perf/names.h"
#include "perf/session.h"

namespace weft {
namespace {

struct ExplainFlags {
  std::string collective, bytes = "64M", type = "float", algorithm = "auto";
  int ranks = 8, hosts = 1, rails = 0, rank = 0, root = 0;
  double rail_gbps = 0, rail_us = 0, host_gbps = 0, host_us = 0;
  bool steps = false, json = false;
};

int run(const ExplainFlags& flags) {
  Question q;
  q.collective = collective_named(flags.collective);
  const auto types = dtypes_named("--type", flags.type);
  if (types.size() != 1) throw Error("--type all: name one type");
  q.type = types[0];
  if (flags.hosts > flags.ranks)
    throw Error(fmt::format("--hosts {} with --ranks {}: every host needs at least one rank",
                            flags.hosts, flags.ranks));
  for (const auto& [flag, value] : {std::pair{"--rank", flags.rank}, {"--root", flags.root}})
    if (value >= flags.ranks)
      throw Error(fmt::format("{} {}: the ranks are 0 to {}", flag, value, flags.ranks - 1));
  q.shape = shape_of(flags.ranks, flags.hosts, flags.rank, flags.root);
  q.rails = flags.rails;
  q.bytes = q.collective == Collective::kBarrier ? 0 : parse_bytes("--bytes", flags.bytes);
  q.algorithm = flags.algorithm;
  q.model = model_of(declared_rail_gbps(flags.rail_gbps), flags.rail_us, flags.host_gbps,
                     flags.host_us, flags.rails);
  const Explanation explanation = explain(q);
  if (flags.json) {
    fmt::print("{}\n", to_json(explanation, flags.steps).dump(2));
  } else {
    fmt::print("{}", text(explanation));
    if (flags.steps) fmt::print("\n{}", steps_text(explanation));
  }
  return explanation.fault.empty() ? kExitOk : kExitCritical;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command =
      app.add_subcommand("explain", "which algorithm a collective takes, and why; its steps");
  command->add_option("collective", flags->collective, collective_names())->required();
  command->add_option("-n,--ranks", flags->ranks, "ranks in all")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--hosts", flags->hosts, "hosts they are on, in equal blocks")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--rails", flags->rails, "rails per host (default: one per rank of a host)")
      ->check(CLI::Range(1, 64));
  command->add_option("--bytes", flags->bytes, "the whole buffer: bytes, 16K, 64M, 1G")
      ->capture_default_str();
  command->add_option("-d,--type", flags->type, dtype_names())->capture_default_str();
  command->add_option("--algo", flags->algorithm, "auto or an algorithm's name")
      ->capture_default_str();
  command->add_option("--root", flags->root, "root of a broadcast")->check(CLI::NonNegativeNumber);
  command->add_flag("--steps", flags->steps, "print the schedule of --rank");
  command->add_option("--rank", flags->rank, "whose steps")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--rail-gbps", flags->rail_gbps, "rate of a rail (or WEFT_RAIL_GBPS)")
      ->check(CLI::PositiveNumber);
  command->add_option("--rail-us", flags->rail_us, "latency between hosts")
      ->check(CLI::PositiveNumber);
  command->add_option("--host-gbps", flags->host_gbps, "bandwidth between two ranks of a host")
      ->check(CLI::PositiveNumber);
  command->add_option("--host-us", flags->host_us, "latency inside a host")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", flags->json, "for programs");
  command->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace weft
