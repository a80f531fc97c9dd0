// Which flags exclude each other, and why. This file starts nothing.
#include "train/cli/train_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "topo/base/exit_code.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

bool given(const CLI::App& command, const std::string& name) {
  return command.get_option(name)->count() > 0;
}

// "--keep 3", as it was given.
std::string as_given(const CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option(name);
  return option->get_expected_min() == 0 ? name
                                         : fmt::format("{} {}", name, option->results().back());
}

struct Ignored {
  const char* name;
  bool ignored;
  std::string why;
};
void refuse_ignored(const CLI::App& command, const std::vector<Ignored>& all) {
  for (const auto& [name, ignored, why] : all)
    if (ignored && given(command, name))
      throw UsageError(fmt::format("{} {}", as_given(command, name), why));
}

// Checks the flags that need ranks along an axis. Nobody has chosen the layout of a job that has
// become smaller (--elastic), so that such a job is not checked.
void check_layout(const CLI::App& command, const TrainFlags& flags) {
  const auto& o = flags.options;
  const auto& mesh = o.mesh;
  const bool alone = mesh.data == 1;
  const char* no_replica =
      "with --dp 1: no gradients travel between replicas; leave it out, or say --dp 2 or more";
  refuse_ignored(
      command, {{"--algo", mesh.ranks() == 1 && mesh.algorithm != "auto",
                 "with one rank: it has nobody to add up with; leave it out, or say -N 2 or more"},
                {"--sync", alone && flags.sync == "ps", no_replica},
                {"--sync", alone && flags.sync == "ps-async",
                 "with one rank: the server is a rank of its own; say -N 2 or more"},
                {"--compress", alone && o.compress != "none", no_replica},
                {"--bucket-bytes", alone, no_replica},
                {"--no-overlap", alone, no_replica}});
}

void check_gpt(const CLI::App& command, const TrainFlags& flags) {
  const auto& o = flags.options;
  if (o.zero == 0 && o.mesh.shard > 1)
    throw UsageError(fmt::format(
        "--shard-group {} with --zero 0: nothing is split; say --zero 1, 2 or 3, or leave it out",
        o.mesh.shard));
  const char* no_sample =
      "with --sample 0: no text is written; say how many bytes, as in --sample 200";
  refuse_ignored(
      command,
      {{"--shard-group", o.zero > 0 && o.mesh.shard == 1,
        fmt::format("with --zero {}: groups of one rank split nothing; say --zero 0, or larger "
                    "groups",
                    o.zero)},
       {"--bucket-bytes", o.zero >= 2,
        fmt::format(
            "with --zero {}: gradients leave unit by unit, not in buckets; leave it out, or "
            "say --zero 0 or 1",
            o.zero)},
       {"--bucket-bytes", o.deterministic,
        "with --deterministic: gradients leave in the order of micro-batches, not in buckets; "
        "leave one of them out"},
       {"--no-overlap", o.deterministic && o.zero < 3,
        "with --deterministic: that decides when gradients travel; leave one of them out"},
       {"--sequence-parallel", o.mesh.tensor == 1,
        "with --tp 1: there is nobody to split rows with; leave it out, or say --tp 2 or more"},
       {"--peak-tflops", flags.backend == "cpu",
        "with --backend cpu: the MFU is a GPU's; leave it out, or say --backend cuda"},
       {"--schedule", o.mesh.pipeline == 1,
        "with --pp 1: there is no pipeline; leave it out, or say --pp 2 or more"},
       {"--embed", o.mesh.tensor == 1,
        "with --tp 1: no rank has a part of the embedding; leave it out, or say --tp 2 or more"},
       {"--tp-style", o.mesh.tensor == 1,
        "with --tp 1: nothing is split; leave it out, or say --tp 2 or more"},
       {"--eval-data", flags.eval_every == 0,
        "with --eval-every 0: nothing is evaluated; leave one of them out"},
       {"--eval-every", flags.steps > 0 && flags.eval_every > flags.steps,
        fmt::format("with --steps {}: no step would be evaluated; say a smaller number, or 0",
                    flags.steps)},
       {"--loss-scale", flags.type == "fp16" && o.loss_scale == 0,
        "with --type fp16: its gradients need a scale; leave it out, or say one above 0"},
       {"--prompt", flags.sample == 0, no_sample},
       {"--no-cache", flags.sample == 0, no_sample},
       {"--temperature", flags.sample == 0, no_sample}});
}

}  // namespace

void check_algorithm_of_sums(const std::string& algorithm) {
  if (algorithm != "auto" && find_algorithm(Collective::kAllReduce, algorithm) == nullptr)
    throw UsageError(fmt::format("--algo {}: there is none of that name; there are auto, {}",
                                 algorithm, algorithm_names(Collective::kAllReduce)));
}

void check_checkpoint_flags(const CLI::App& command, const CheckpointFlags& flags) {
  if (flags.save.empty() && (flags.restart.on() || flags.resume))
    throw UsageError(fmt::format("{} needs checkpoints: pass --save FOLDER",
                                 flags.restart.restarts > 0 ? "--restart"
                                 : flags.restart.elastic    ? "--elastic"
                                                            : "--resume"));
  const char* no_save = "without --save: nothing is saved; say --save FOLDER, or leave it out";
  refuse_ignored(command, {{"--save-every", flags.save.empty(), no_save},
                           {"--keep", flags.save.empty(), no_save}});
}

void check_train_flags(const CLI::App& command, const TrainFlags& flags) {
  const bool async = flags.sync == "ps-async";
  if (!async && given(command, "--staleness"))
    throw UsageError(fmt::format("--staleness {} with --sync {}: only --sync ps-async has any",
                                 flags.staleness, flags.sync));
  for (const char* other : {"--save", "--resume", "--restart", "--elastic", "--trace", "--compress",
                            "--deterministic", "--offload", "--loss-scale", "--prompt",
                            "--eval-every", "--eval-data", "--algo", "--no-overlap"})
    if (async && (given(command, other) || flags.sample > 0))
      throw UsageError(fmt::format("{} with --sync ps-async: it has none of that; leave one out",
                                   flags.sample > 0 ? "--sample" : other));
  if (async && (flags.backend != "cpu" || (flags.type != "float" && flags.type != "double")))
    throw UsageError("--sync ps-async: on the processor in float or double; leave --type out");
  check_algorithm_of_sums(flags.options.mesh.algorithm);
  if (flags.steps == 0 && (flags.save.empty() || !flags.log.empty()))
    throw UsageError(flags.save.empty()
                         ? "--steps 0: nothing is trained; pass --save FOLDER with a checkpoint to "
                           "evaluate, or more steps"
                         : "--log with --steps 0: nothing is trained; leave one of them out");
  check_checkpoint_flags(command, flags);
  check_gpt(command, flags);
  if (!restarted()) check_layout(command, flags);
}

void check_ffn_flags(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool of_job = option->get_group() == "Ranks and fabric" || name == "--steps";
    if (option->count() > 0 && !of_job && name != "--model")
      throw UsageError(fmt::format(
          "{} with --model ffn: that network is as it is drawn; leave one of them out", name));
  }
  if (given(command, "--steps") && command.get_option("--steps")->as<int>() == 0)
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
