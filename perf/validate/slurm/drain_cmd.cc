// `weft drain`: prints the nodes that should be drained according to a report, for Slurm scripts.
#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "perf/cli/commands.h"
#include "perf/validate/slurm/drain.h"
#include "topo/base/status.h"

namespace weft {
namespace {

struct DrainFlags {
  std::string report;
  std::string certainty{word_of(fabric::Certainty::kLikely)};
};

int print_drains(const DrainFlags& flags) {
  std::ifstream file(flags.report);
  if (!file) throw Error(fmt::format("{}: cannot be read", flags.report));
  const auto report = nlohmann::ordered_json::parse(file, nullptr, false);
  if (report.is_discarded()) throw Error(fmt::format("{}: no JSON", flags.report));
  for (const fabric::Drain& drain :
       fabric::nodes_to_drain(report, *fabric::certainty_from(flags.certainty)))
    fmt::print("{} {}\n", drain.node, drain.reason);
  return kExitOk;
}

}  // namespace

void add_drain(CLI::App& app, int& exit_code) {
  auto* drain = app.add_subcommand(
      "drain", "print the nodes to drain, with reasons, from a report of validate --json");
  static DrainFlags flags;
  drain->add_option("report", flags.report, "file of weft validate --json")->required();
  drain->add_option("--certainty", flags.certainty, "omit findings with less certainty")
      ->check(CLI::IsMember({"certain", "likely", "possible"}))
      ->capture_default_str();
  drain->footer(
      "Prints a line for each node: its name, a blank, and the reason.\n"
      "Example: weft drain report.json --certainty certain");
  drain->callback([&exit_code] { exit_code = print_drains(flags); });
}

}  // namespace weft
