// Which flags exclude each other, and why. This file starts nothing.
#include "train/cli/train_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"

namespace weft {
namespace {

using Names = std::set<std::string, std::less<>>;

bool given(const CLI::App& command, const std::string& name) {
  return command.get_option(name)->count() > 0;
}

// What the spiral takes. A flag that is not here is refused: a new one is not forgotten.
const Names kOfTheSpiral{
    "ranks",         "hosts", "rails",      "transport", "timeout-ms",   "rail-gbps",    "help",
    "model",         "steps", "algo",       "lr",        "seed",         "log",          "trace",
    "deterministic", "save",  "save-every", "keep",      "resume",       "restart",      "elastic",
    "kill",          "sync",  "staleness",  "type",      "report-every", "straggler-us", "backend"};

// What those take that train nothing. The sizes of the job are part of a line that is explained.
const Names kOfExplain{"help",  "explain", "of", "stages", "microbatches", "schedule", "chunks",
                       "ranks", "dp",      "tp", "pp",     "hosts",        "rails"};
const Names kOfBubbles{"help",  "bubbles",   "bubble-us",  "ranks",    "hosts",
                       "rails", "transport", "timeout-ms", "rail-gbps"};
const Names kOfBench{"help",        "bench-kernels", "bench-rows", "bench-repeat",
                     "peak-tflops", "peak-gbs",      "backend"};

void check_only(const CLI::App& command, const char* mode, const Names& taken) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames()[0];
    if (!taken.contains(name))
      throw UsageError(fmt::format(
          "--{} with {}: nothing is trained, so it would be ignored; leave one of them out", name,
          mode));
  }
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

// What to do instead of some of the others.
const std::map<std::string, const char*, std::less<>> kInsteadForTheSpiral{
    {"dp", "all its ranks are data parallel: say -N, the number of ranks"},
    {"tp", "every rank has all of its 603 weights; leave it out, or train --model gpt"},
    {"pp", "it has one hidden layer; leave it out, or train --model gpt"},
    {"zero", "plain gradient descent has no state to split; leave it out, or train --model gpt"},
    {"data", "its points are made from --seed; leave it out, or train --model gpt"},
    {"optimizer", "it has plain gradient descent; leave it out, or train --model gpt"},
    {"lr-per-256", "its gradient is always that of all samples; say --lr"},
    {"sample", "it writes no text; leave it out, or train --model gpt"}};

void check_spiral(const CLI::App& command, const TrainFlags& flags) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames()[0];
    if (kOfTheSpiral.contains(name)) continue;
    const auto instead = kInsteadForTheSpiral.find(name);
    throw UsageError(fmt::format("--{} with --model spiral: {}", name,
                                 instead != kInsteadForTheSpiral.end()
                                     ? instead->second
                                     : "it would be ignored; leave it out, or train --model gpt"));
  }
  const auto& s = flags.spiral.options;
  if (flags.backend == "cuda")
    throw UsageError(
        "--backend cuda with --model spiral: it runs on the processor only; leave it out");
  if (!flags.type.empty() && flags.type != "double")
    throw UsageError(fmt::format(
        "--type {} with --model spiral: it computes in double only; leave it out", flags.type));
  if (s.sync != "allreduce" && flags.options.mesh.algorithm != "auto")
    throw UsageError(
        fmt::format("--algo {} with --sync {}: a parameter server has no all-reduce; leave one out",
                    flags.options.mesh.algorithm, s.sync));
  if (s.sync != "ps-async" && given(command, "--staleness"))
    throw UsageError(fmt::format("--staleness {} with --sync {}: only --sync ps-async has any",
                                 s.staleness, s.sync));
}

void check_gpt(const CLI::App& command, const TrainFlags& flags) {
  const auto& s = flags.spiral.options;
  if (s.sync == "ps-async")
    throw UsageError(
        "--sync ps-async with --model gpt: its replicas wait for each other in every step; say "
        "--sync ps, or train --model spiral");
  if (given(command, "--staleness"))
    throw UsageError(
        "--staleness with --model gpt: its replicas wait for each other in every step; leave it "
        "out, or train --model spiral --sync ps-async");
  if (given(command, "--report-every"))
    throw UsageError(
        "--report-every with --model gpt: it prints its first steps and then a line a second; "
        "--log FILE has every step");
  const auto& o = flags.options;
  if (o.zero == 0 && o.mesh.shard > 1)
    throw UsageError(fmt::format(
        "--shard-group {} with --zero 0: nothing is split; say --zero 1, 2 or 3, or leave it out",
        o.mesh.shard));
  const char* no_bench = "without --bench-kernels: no kernel is timed; leave it out, or say both";
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
       {"--sequence-parallel", o.mesh.tensor == 1,
        "with --tp 1: there is nobody to split rows with; leave it out, or say --tp 2 or more"},
       {"--peak-tflops", flags.backend == "cpu",
        "with --backend cpu: the MFU is a GPU's; leave it out, or say --backend cuda"},
       {"--bench-rows", true, no_bench},
       {"--bench-repeat", true, no_bench},
       {"--peak-gbs", true, no_bench},
       {"--bubble-us", true,
        "without --bubbles: no bubbles are measured; leave it out, or say both"},
       {"--eval-data", flags.eval_every == 0,
        "with --eval-every 0: nothing is evaluated; leave one of them out"},
       {"--prompt", flags.sample == 0, no_sample},
       {"--temperature", flags.sample == 0, no_sample}});
}

}  // namespace

void check_train_flags(const CLI::App& command, const TrainFlags& flags) {
  if (flags.explain) return check_only(command, "--explain", kOfExplain);
  if (flags.spiral.bubbles) return check_only(command, "--bubbles", kOfBubbles);
  if (flags.bench_kernels) return check_only(command, "--bench-kernels", kOfBench);
  const std::string& algorithm = flags.options.mesh.algorithm;
  if (algorithm != "auto" && find_algorithm(Collective::kAllReduce, algorithm) == nullptr)
    throw UsageError(fmt::format("--algo {}: there is none of that name; there are auto, {}",
                                 algorithm, algorithm_names(Collective::kAllReduce)));
  if (flags.save.empty() && (flags.restart.on() || flags.resume))
    throw UsageError(fmt::format("{} needs checkpoints: pass --save FOLDER",
                                 flags.restart.restarts > 0 ? "--restart"
                                 : flags.restart.elastic    ? "--elastic"
                                                            : "--resume"));
  const char* no_save = "without --save: nothing is saved; say --save FOLDER, or leave it out";
  refuse_ignored(command, {{"--save-every", flags.save.empty(), no_save},
                           {"--keep", flags.save.empty(), no_save}});
  if (flags.model == "spiral")
    check_spiral(command, flags);
  else
    check_gpt(command, flags);
}

void check_train_folders(const TrainFlags& flags) {
  std::error_code error;
  if (!flags.save.empty()) std::filesystem::create_directories(flags.save, error);
  if (!flags.save.empty() && (error || access(flags.save.c_str(), W_OK) != 0))
    throw Error(fmt::format("--save {}: cannot write there: {}; name another folder", flags.save,
                            error ? error.message() : std::strerror(errno)));
  const auto folder = std::filesystem::path(flags.trace).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error))
    throw Error(fmt::format("--trace {}: there is no folder {}; make it first", flags.trace,
                            folder.string()));
}

}  // namespace weft
