// Rows of several commands, and checks of several options. Starts nothing.
#include "train/cli/train_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "coll/schedule/algorithm.h"
#include "topo/base/exit_code.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {

OptionTable::Row add_sync(const OptionTable& add, std::string& sync, int& staleness,
                          int& straggler_us) {
  const auto row =
      add("--sync", sync,
          "how workers add up gradients: allreduce; ps: the first rank is a parameter server; "
          "ps-async: the first rank only serves, without waiting",
          CLI::IsMember({"allreduce", "ps", "ps-async"}));
  add("--staleness", staleness, "steps a worker may be ahead (ps-async)", CLI::NonNegativeNumber)
      .refused(sync != "ps-async",
               fmt::format("with --sync {}: only --sync ps-async has any", sync));
  add("--straggler-us", straggler_us,
      "time that the last rank sleeps in each step, in us, for tests", CLI::NonNegativeNumber);
  return row;
}

OptionTable::Row add_algorithm(const OptionTable& add, std::string& algorithm, bool alone) {
  const bool chosen = algorithm != "auto";
  return add("--algo", algorithm, "algorithm of the collectives: auto or a name")
      .refused(chosen && find_algorithm(Collective::kAllReduce, algorithm) == nullptr,
               fmt::format(": there is none of that name; there are auto, {}",
                           algorithm_names(Collective::kAllReduce)))
      .refused(chosen && alone,
               "with one rank: it has nobody to add up with; leave it out, or say -N 2 or more");
}

void check_ffn_flags(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool of_job = option->get_group() == "Ranks and fabric" || name == "--steps";
    if (option->count() > 0 && !of_job && name != "--model")
      throw UsageError(fmt::format(
          "{} with --model ffn: that network is as it is drawn; leave one of them out", name));
  }
  const CLI::Option* steps = command.get_option("--steps");
  if (steps->count() > 0 && steps->as<int>() == 0)
    throw UsageError("--steps 0 with --model ffn: it has no checkpoints; say --steps 1 or more");
}

int one_rank_tells(const std::function<void()>& check) {
  try {
    check();
  } catch (const UsageError&) {
    if (launched() && job_from_environment().rank != 0) return kExitError;
    throw;
  }
  return kExitOk;
}

void check_train_folders(const std::string& save, const std::string& trace) {
  std::error_code error;
  if (!save.empty()) std::filesystem::create_directories(save, error);
  if (!save.empty() && (error || access(save.c_str(), W_OK) != 0))
    throw Error(fmt::format("--save {}: cannot write there: {}; name another folder", save,
                            error ? error.message() : std::strerror(errno)));
  const auto folder = std::filesystem::path(trace).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error))
    throw Error(
        fmt::format("--trace {}: there is no folder {}; make it first", trace, folder.string()));
}

}  // namespace weft
