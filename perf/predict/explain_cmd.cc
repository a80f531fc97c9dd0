// `weft explain COLLECTIVE`: shows the chosen algorithm, why, the predicted time, the steps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "perf/cli/commands.h"
#include "perf/cli/parse_errors.h"
#include "perf/predict/explain.h"
#include "perf/predict/model_flags.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

struct ExplainFlags : ModelFlags {
  int rank = 0;
  bool steps = false;
  std::string json, profile = "auto";
};

// Returns the named profile, or the newest in the user's cache with the same number of ranks and
// hosts.
Profile profile_of(const ExplainFlags& flags, const Shape& shape) {
  if (flags.profile == "off") return {};
  if (flags.profile != "auto") {
    std::ifstream file(flags.profile, std::ios::binary);
    if (!file || std::filesystem::is_directory(flags.profile))
      throw Error(fmt::format("--profile {}: cannot be read", flags.profile));
    try {
      return Profile::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    } catch (const Error& e) {
      throw Error(fmt::format("--profile {}: {}", flags.profile, e.what()));
    }
  }
  return newest_profile(shape);
}

int run(const ExplainFlags& flags) {
  check_report(flags.json);
  Question q;
  q.call = call_of(flags, flags.rank);
  q.algorithm = flags.algorithm;
  q.profile = profile_of(flags, q.call.shape);
  const Explanation explanation = explain(q);
  if (!flags.json.empty())
    write_report(flags.json, to_json(explanation, flags.steps).dump(2) + "\n");
  if (flags.json != "-") {
    fmt::print("{}", text(explanation));
    if (flags.steps) fmt::print("\n{}", steps_text(explanation));
  }
  return explanation.fault.empty() ? kExitOk : kExitCritical;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command =
      app.add_subcommand("explain", "which algorithm a collective uses, and why; its steps");
  add_model_flags(*command, *flags, "auto or an algorithm's name");
  section(*command, "Output");
  command->add_flag("--steps", flags->steps, "print the schedule of --rank");
  command->add_option("--rank", flags->rank, "whose steps")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option(
          "--profile", flags->profile,
          "times measured by a job (coll/select/profile.h): a file, off, or auto: the newest of "
          "as many ranks and hosts in the user's cache")
      ->capture_default_str();
  add_json_option(*command, flags->json, "weft.explain/1");
  command->footer("Example: weft explain all_reduce -N 8 --hosts 2 --rails 4 --bytes 64M --steps");
  command->callback([command, flags, &exit_code] {
    refuse_ignored(*command, *flags);
    if (!flags->steps) refuse_given(*command, {"--rank"}, "it selects the rank of --steps");
    exit_code = run(*flags);
  });
}

}  // namespace weft
