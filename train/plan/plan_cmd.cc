// weft plan: parses the flags and prints the ranked layouts. Contains no formula.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>

#include "coll/jobs/machine_options.h"
#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "topo/base/status.h"
#include "train/cli/commands.h"
#include "train/cli/options.h"
#include "train/pipeline/schedule.h"
#include "train/plan/plan.h"
#include "train/plan/workload.h"

namespace weft {
namespace {

constexpr int kNothingFits = 1;  // exit code, the same as for a warning

struct PlanArguments {
  std::string model, params, memory, type = "bf16";
  int layers = 0, hidden = 0, heads = 0, vocabulary = 50257, sequence = 2048, rows = 10;
  train::Cluster cluster;
  MachineFlags machine;
  double tflops = 0;
  train::Wanted wanted;
  std::string json, trace;
};

int plan(PlanArguments a, bool sequence_given, bool vocabulary_given) {
  if (a.model.empty() == a.params.empty())
    throw Error("weft plan needs either --model (gpt2 .. deepseek-v3) or --params (10e9)");
  if (!a.model.empty() && (a.layers != 0 || a.hidden != 0 || a.heads != 0 || sequence_given))
    throw Error("--layers, --width, --heads and --positions go with --params; --model " + a.model +
                " has its own");
  train::ModelShape model = a.model.empty()
                                ? train::model_of_size(train::parse_amount("--params", a.params),
                                                       a.layers, a.hidden, a.heads, a.sequence)
                                : train::known_model(a.model);
  if (model.gpt() || vocabulary_given) model.vocabulary = a.vocabulary;
  if (!model.gpt() && !a.trace.empty())
    throw Error("--trace with --model " + a.model +
                ": workloads are those of weft train, which has no such model; leave one out");
  if (model.moe.experts == 0 && a.wanted.ep > 1)
    throw Error(fmt::format("--ep {}: this model has no experts; leave it out", a.wanted.ep));
  Machine& machine = a.cluster.machine = machine_of(a.machine);
  if (!a.memory.empty()) machine.memory_bytes = train::parse_amount("--gpu-memory", a.memory);
  if (a.tflops > 0) machine.tflops = a.tflops;
  if (machine.memory_bytes <= 0 || machine.tflops <= 0)
    throw Error("--machine " + a.machine.machine +
                ": the memory and peak of its devices are unknown; give --gpu-memory and "
                "--gpu-tflops");
  if (machine.memory_bytes < 1e6)
    throw Error("--gpu-memory " + a.memory + ": fewer than a million bytes; is it " + a.memory +
                "G?");
  if (a.cluster.gpus < 1 || a.cluster.gpus_per_host < 1 || a.wanted.batch < 1)
    throw Error("--gpus, --gpus-per-host and --batch must be at least 1");
  a.wanted.precision = train::precision_of(a.type);
  if (!a.wanted.schedule.empty()) train::make_pipeline_schedule(a.wanted.schedule, {1, 1, 1});
  const int tp = std::max(a.wanted.tp, 1), dp = std::max(a.wanted.dp, 1);
  if (!a.wanted.schedule.empty() && (a.wanted.pp == 1 || tp * std::int64_t{dp} >= a.cluster.gpus))
    throw Error(
        fmt::format("--schedule {} with {}: there is no pipeline; leave it out", a.wanted.schedule,
                    a.wanted.pp == 1
                        ? "--pp 1"
                        : fmt::format("--tp {} and --dp {} of --gpus {}", tp, dp, a.cluster.gpus)));
  const train::Plan plan = train::make_plan(model, a.cluster, a.wanted);
  if (!a.json.empty()) write_report(a.json, train::to_json(plan, a.rows));
  if (!a.trace.empty()) {
    const train::Layout& layout = (plan.layouts.empty() ? plan.closest : plan.layouts).front();
    std::ofstream out(a.trace);
    out << train::simai_workload(model, layout);
    out.close();
    if (!out) throw Error(fmt::format("--trace {}: cannot be written", a.trace));
  }
  if (a.json != "-") std::fputs(train::to_text(plan, a.rows).c_str(), stdout);
  return plan.layouts.empty() ? kNothingFits : 0;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto* c = app.add_subcommand("plan", "memory, layouts and step times of a model on a cluster");
  const auto a = std::make_shared<PlanArguments>();
  const OptionAdder add(*c);
  const auto positive = CLI::PositiveNumber, at_least_0 = CLI::NonNegativeNumber;
  add("--model", a->model,
      "gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt3; llama3-8b, llama3-70b, llama3-405b, "
      "mixtral-8x7b, deepseek-v3, which weft train does not have");
  add("--params", a->params, "instead of --model: number of parameters, about (10e9, 10G)");
  add.unset("--layers", a->layers, "with --params: layers", positive);
  add.unset("--width", a->hidden, "with --params: hidden size", positive);
  add.unset("--heads", a->heads, "with --params: heads", positive);
  const auto* vocabulary = add("--vocabulary", a->vocabulary,
                               "words of the model, but of those it does not train", positive);
  const auto* sequence =
      add("--positions", a->sequence, "with --params: tokens of a sequence", positive);
  section(*c, "The cluster");
  add("--gpus", a->cluster.gpus, "GPUs");
  add("--gpus-per-host", a->cluster.gpus_per_host, "GPUs of a high-speed domain");
  add("--gpu-memory", a->memory, "memory of a GPU, 80G or 80GiB (default: as the machine has it)");
  add.unset("--gpu-tflops", a->tflops,
            "dense peak in bf16, TFLOP/s (default: as the machine has it)", positive);
  add("--efficiency", a->cluster.efficiency,
      "share of it that products reach, above 0 and at most 1", CLI::Range(0.001, 1.0));
  add_machine_options(*c, a->machine, MachineParts::kLinks);
  section(*c, "The layout");
  add("--batch", a->wanted.batch, "sequences per step, over all ranks");
  add.unset("--micro-batch", a->wanted.microbatch, "sequences of a micro-batch (0: any)",
            at_least_0);
  add.unset("--tp", a->wanted.tp, "tensor-parallel ranks (0: any)", at_least_0);
  add.unset("--pp", a->wanted.pp, "pipeline stages (0: any)", at_least_0);
  add.unset("--dp", a->wanted.dp, "data-parallel ranks (0: any)", at_least_0);
  add.unset("--ep", a->wanted.ep, "data-parallel ranks that share the experts (0: any)",
            at_least_0);
  add.unset("--cp", a->wanted.cp, "context-parallel ranks, which share each sequence (default: 1)",
            positive);
  add.unset("--zero", a->wanted.zero, "ZeRO stage (-1: any)", CLI::Range(-1, 3));
  add("--schedule", a->wanted.schedule, "pipeline schedule (default: any)");
  add("--type", a->type, "numbers of the run: bf16, fp16, float or double");
  section(*c, "Output");
  add("--rows", a->rows, "layouts to show", positive);
  add("--trace", a->trace, "write a step of the first layout as a workload that weft replay plays");
  add_json_option(*c, a->json, "weft.plan/1");
  c->footer("Example: weft plan --model gpt3 --gpus 1024 --gpu-memory 80G");
  c->callback([a, sequence, vocabulary, &exit_code] {
    exit_code = plan(*a, sequence->count() > 0, vocabulary->count() > 0);
  });
}

}  // namespace weft
