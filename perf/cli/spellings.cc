// The table of foreign and earlier spellings of options.
#include "perf/cli/spellings.h"

#include <fmt/format.h>

#include <string_view>

namespace weft {
namespace {

struct Spelling {
  std::string_view command;  // the last word of the command; empty: every command
  std::string_view typed;    // with its hyphens
  std::string_view here;     // the option in its place; empty: there is none, `about` says why
  std::string_view about = "";
};

constexpr Spelling kSpellings[] = {
    {"", "-n", "-N", "ranks"},
    {"", "--np", "-N", "ranks"},
    {"", "--iterations", "--iters"},
    {"replay", "-i", "-n", "steps"},
    {"", "--microbatches", "--micro-batches"},
    {"", "--microbatch", "--micro-batch"},
    {"", "--hidden", "--width"},
    {"", "--sequence", "--positions"},
    {"", "--rail-gbytes", "--rail-gbps", "in Gb/s: 8 times as many"},
    {"", "--domain-gbytes", "--host-gbps", "in Gb/s: 8 times as many"},
    {"", "--domain-us", "--host-us"},
    {"", "--reduce-GBps", "--reduce-gbs"},
    {"", "--copy-GBps", "--copy-gbs"},
    {"", "--stop-after", "--stop-after-s"},
    {"", "--grace", "--grace-ms", "milliseconds"},
    {"", "--after", "--after-s"},
    {"", "--counters", "--json"},
    {"softroce", "--timeout", "--limit-s"},
    {"", "--timeout", "--timeout-ms", "milliseconds"},
    {"", "--limit", "--limit-s"},
    {"", "--output", "--out"},
    // nccl-tests
    {"perf", "--minbytes", "--begin"},
    {"perf", "--maxbytes", "--end"},
    {"perf", "--stepfactor", "--factor"},
    {"perf", "-i", "", "sizes grow by a factor, -f; iterations are -n"},
    {"perf", "--stepbytes", "", "sizes grow by a factor, -f"},
    {"perf", "--warmup_iters", "--warm-up"},
    {"perf", "--datatype", "--type"},
    {"perf", "-m", "", "calls are not aggregated; --back-to-back leaves out the barriers"},
    {"perf", "--agg_iters", "", "calls are not aggregated; --back-to-back leaves out the barriers"},
    {"perf", "-a", "", "the slowest rank's time counts"},
    {"perf", "--average", "", "the slowest rank's time counts"},
    {"perf", "-z", "", "every call is waited for"},
    {"perf", "--blocking", "", "every call is waited for"},
    {"perf", "-G", "", "there are no CUDA graphs"},
    {"perf", "--cudagraph", "", "there are no CUDA graphs"},
    {"perf", "-T", "--timeout-ms", "milliseconds"},
    {"perf", "-p", "", "ranks are set up in parallel"},
    {"perf", "-C", "", "the time of the CPU is that of the operation"},
    {"perf", "-R", "", "--buffers weft has registered memory"},
    // commands of their own, now
    {"train", "--model", "", "`weft spiral` trains the spiral, `weft train` the transformer"},
    {"train", "--explain", "", "`weft pipeline explain` prints the steps of a schedule"},
    {"train", "--of", "", "`weft pipeline explain --of FILE` shows what a run did"},
    {"train", "--stages", "", "`weft pipeline explain` takes it"},
    {"train", "--bubbles", "", "`weft pipeline bubbles` measures them"},
    {"train", "--bubble-us", "", "`weft pipeline bubbles --op-us` has it"},
    {"train", "--bench-kernels", "", "`weft bench kernels` times them"},
    {"train", "--bench-rows", "", "`weft bench kernels --rows` has it"},
    {"train", "--bench-repeat", "", "`weft bench kernels --repeat` has it"},
    {"train", "--peak-gbs", "", "`weft bench kernels` takes it"},
    {"train", "--staleness", "", "only `weft spiral --sync ps-async` has any"},
    {"train", "--report-every", "", "`weft spiral` takes it; --log FILE has every step"},
    // perftest
    {"bw", "-F", "", "no counter of the CPU's frequency is used; leave it out"},
    {"lat", "-F", "", "no counter of the CPU's frequency is used; leave it out"},
    {"bw", "-R", "", "connections are made over TCP, not by rdma_cm; leave it out"},
    {"lat", "-R", "", "connections are made over TCP, not by rdma_cm; leave it out"},
    {"bw", "-c", "", "queue pairs are RC; leave it out"},
    {"lat", "-c", "", "queue pairs are RC; leave it out"},
    {"bw", "-u", "", "WEFT_VERBS_TIMEOUT sets the time-out of a queue pair"},
    {"lat", "-u", "", "WEFT_VERBS_TIMEOUT sets the time-out of a queue pair"},
    {"bw", "-r", "", "receives are as many as sends, -t"},
    {"lat", "-r", "", "there is one message at a time"},
    {"bw", "-T", "--tclass"},
    {"lat", "-T", "--tclass"},
};

}  // namespace

std::string spelling_here(const CLI::App& command, const std::string& typed) {
  const std::string_view flag = std::string_view(typed).substr(0, typed.find('='));
  for (const Spelling& s : kSpellings) {
    if (s.typed != flag || (!s.command.empty() && s.command != command.get_name())) continue;
    if (s.here.empty()) return fmt::format("{}: {}", s.typed, s.about);
    if (command.get_option_no_throw(std::string(s.here)) == nullptr) continue;
    return fmt::format("{} is {} here{}", s.typed, s.here,
                       s.about.empty() ? "" : fmt::format(" ({})", s.about));
  }
  return "";
}

}  // namespace weft
