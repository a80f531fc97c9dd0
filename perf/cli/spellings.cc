// The table of foreign and earlier spellings of options.
#include "perf/cli/spellings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <regex>
#include <string_view>
#include <vector>

#include "coll/types.h"
#include "topo/base/text.h"

namespace weft {
namespace {

struct Spelling {
  std::string_view command;  // the last word of the command, or kPair; empty: every command
  std::string_view typed;    // with its hyphens
  std::string_view here;     // the option in its place; empty: there is none, `about` says why
  std::string_view about = "";
  bool ignored = false;  // left out with a warning, with its value: see leave_out_ignored()
};

constexpr std::string_view kPair = "bw|lat";

constexpr std::string_view kEnds =
    "a launcher starts both ends, as in `weft launch -N 2 --hosts 2 -- weft perf bw --op tcp` "
    "(perftest's -N needs nothing in its place: the best 100 ms are the peak)";

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
    {"peers", "--budget", "--budget-s", "seconds"},
    // nccl-tests
    {"perf", "--minbytes", "--begin"},
    {"perf", "--maxbytes", "--end"},
    {"perf", "--stepfactor", "--factor"},
    {"perf", "-i", "", "sizes grow by a factor (-f), and iterations are -n", true},
    {"perf", "--stepbytes", "", "sizes grow by a factor (-f)", true},
    {"perf", "-I", "", "iterations are -n"},
    {"perf", "--warmup_iters", "--warm-up"},
    {"perf", "--datatype", "--type"},
    {"perf", "-m", "", "calls are not aggregated; --back-to-back leaves out the barriers"},
    {"perf", "--agg_iters", "", "calls are not aggregated; --back-to-back leaves out the barriers"},
    {"perf", "--run_cycles", "", "a run is one cycle; -n has the operations"},
    {"perf", "-a", "", "the slowest rank's time counts"},
    {"perf", "--average", "", "the slowest rank's time counts"},
    {"perf", "-z", "", "every call is waited for", true},
    {"perf", "--blocking", "", "every call is waited for", true},
    {"perf", "-y", "", "there is no CUDA stream", true},
    {"perf", "--stream_null", "", "there is no CUDA stream", true},
    {"perf", "-G", "", "there are no CUDA graphs", true},
    {"perf", "--cudagraph", "", "there are no CUDA graphs", true},
    {"perf", "-T", "--timeout-ms", "milliseconds"},
    {"perf", "-p", "", "ranks are set up in parallel", true},
    {"perf", "--parallel_init", "", "ranks are set up in parallel", true},
    {"perf", "-C", "", "the time of the CPU is that of the operation", true},
    {"perf", "--report_cputime", "", "the time of the CPU is that of the operation", true},
    {"perf", "-S", "", "rows have no time stamps", true},
    {"perf", "--report_timestamps", "", "rows have no time stamps", true},
    {"perf", "-R", "", "--buffers weft has registered memory"},
    {"perf", "--local_register", "", "--buffers weft has registered memory"},
    {"perf", "-D", "", "it chooses among NCCL's kernels", true},
    {"perf", "-V", "", "it chooses among NCCL's kernels", true},
    {"perf", "-x", "", "it chooses among NCCL's kernels", true},
    {"perf", "-M", "", "memory is not reported", true},
    {"perf", "-u", "", "buffers begin at pages", true},
    {"perf", "-J", "--json"},
    {"perf", "--output_file", "--json"},
    {"perf", "--no-check", "", "-c 0 compares nothing"},
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
    {kPair, "--validate", "--check"},
    {kPair, "-F", "", "no counter of the CPU's frequency is used; leave it out"},
    {kPair, "--CPU-freq", "", "no counter of the CPU's frequency is used; leave it out"},
    {kPair, "-R", "", "connections are made over TCP, not by rdma_cm; leave it out"},
    {kPair, "--rdma_cm", "", "connections are made over TCP, not by rdma_cm; leave it out"},
    {kPair, "-z", "", "connections are made over TCP, not by rdma_cm; leave it out"},
    {kPair, "--comm_rdma_cm", "", "connections are made over TCP, not by rdma_cm; leave it out"},
    {kPair, "-c", "", "queue pairs are RC; leave it out"},
    {kPair, "--connection", "", "queue pairs are RC; leave it out"},
    {kPair, "-u", "", "WEFT_VERBS_TIMEOUT sets the time-out of a queue pair"},
    {kPair, "--qp-timeout", "", "WEFT_VERBS_TIMEOUT sets the time-out of a queue pair"},
    {"bw", "-r", "", "receives are as many as sends, -t"},
    {"bw", "--rx-depth", "", "receives are as many as sends, -t"},
    {"lat", "-r", "", "there is one message at a time"},
    {"lat", "--rx-depth", "", "there is one message at a time"},
    {"lat", "-t", "", "there is one message at a time"},
    {"lat", "--tx-depth", "", "there is one message at a time"},
    {"lat", "-l", "", "there is one message at a time"},
    {"lat", "--post_list", "", "there is one message at a time"},
    {"lat", "-q", "", "there is one queue pair"},
    {"lat", "--qp", "", "there is one queue pair"},
    {"lat", "-b", "", "messages go to and fro; `weft perf bw -b` has both ways at once"},
    {"lat", "--report_gbits", "", "times are in microseconds; `weft perf bw` has rates"},
    {kPair, "-T", "--tclass"},
    {kPair, "--tos", "--tclass"},
    {kPair, "-N", "", kEnds},
    {kPair, "--ranks", "", kEnds},
    {kPair, "--hosts", "", kEnds},
    {kPair, "--rails", "", kEnds},
    {kPair, "--transport", "--op"},
    {kPair, "--noPeak", "", "the best 100 ms are the peak, and cost nothing; leave it out"},
    {kPair, "-o", "", "the devices' most reads and atomics are used"},
    {kPair, "--outs", "", "the devices' most reads and atomics are used"},
    {kPair, "-A", "", "atomics are not tested"},
    {kPair, "-C", "", "times are in microseconds"},
    {kPair, "--report-cycles", "", "times are in microseconds"},
    {kPair, "-H", "", "--json has the percentiles"},
    {kPair, "--report-histogram", "", "--json has the percentiles"},
    {kPair, "-U", "", "--json has the percentiles"},
    {kPair, "--report-unsorted", "", "--json has the percentiles"},
    {kPair, "-W", "", "--json has the counters of the port"},
    {kPair, "--report-counters", "", "--json has the counters of the port"},
    {kPair, "--report-both", "", "-b adds both ways up, --json has each"},
    {kPair, "--out_json", "--json"},
    {kPair, "--out_json_file", "--json"},
    {kPair, "--run_infinitely", "--duration", "seconds for each size"},
    {kPair, "--use_cuda_dmabuf", "--use_cuda", "by dma-buf where it can"},
    {kPair, "-w", "", "rates are not limited; `weft validate` judges them"},
    {kPair, "--limit_bw", "", "rates are not limited; `weft validate` judges them"},
    {kPair, "--rate_limit", "", "rates are not limited"},
    {kPair, "-y", "", "rates are not limited; `weft validate` judges them"},
    {kPair, "--limit_msgrate", "", "rates are not limited; `weft validate` judges them"},
    {kPair, "--perform_warm_up", "", "there is always a warm-up; leave it out"},
};

}  // namespace

std::string spelling_here(const CLI::App& command, const std::string& typed) {
  const std::string_view flag = std::string_view(typed).substr(0, typed.find('='));
  for (const Spelling& s : kSpellings) {
    const std::string& name = command.get_name();
    const bool pair = s.command == kPair && (name == "bw" || name == "lat");
    if (s.typed != flag || (!s.command.empty() && s.command != name && !pair)) continue;
    if (s.here.empty()) return fmt::format("{}: {}", s.typed, s.about);
    if (command.get_option_no_throw(std::string(s.here)) == nullptr) continue;
    return fmt::format("{} is {} here{}", s.typed, s.here,
                       s.about.empty() ? "" : fmt::format(" ({})", s.about));
  }
  return "";
}

std::string spelling_like(const CLI::App& command, const std::string& typed) {
  if (!typed.starts_with("--")) return "";
  std::vector<std::string> known;
  for (const Spelling& s : kSpellings)
    if (s.typed.starts_with("--") && !spelling_here(command, std::string(s.typed)).empty())
      known.emplace_back(s.typed);
  const std::string like = word_like(typed.substr(0, typed.find('=')), known);
  return like.empty() ? like : spelling_here(command, like);
}

std::vector<std::string> leave_out_ignored(std::vector<char*>& arguments) {
  std::vector<std::string> warnings;
  const auto word = [&](std::size_t i) { return std::string_view(arguments[i]); };
  if (arguments.size() < 3 || word(1) != "perf" || !collective_from(word(2))) return warnings;
  for (std::size_t i = 3; i < arguments.size() && word(i) != "--";) {
    const std::string_view flag = word(i).substr(0, word(i).find('='));
    const auto* const s = std::ranges::find_if(kSpellings, [&](const Spelling& known) {
      return known.ignored && known.command == word(1) && known.typed == flag;
    });
    if (s == std::end(kSpellings)) {
      ++i;
      continue;
    }
    const bool value = flag == word(i) && i + 1 < arguments.size() && word(i + 1)[0] != '-';
    warnings.push_back(fmt::format("{}{}{} is ignored: {}", word(i), value ? " " : "",
                                   value ? word(i + 1) : "", s->about));
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    arguments.erase(at, at + (value ? 2 : 1));
  }
  return warnings;
}

std::string command_for(const std::string& program) {
  static const std::regex perftest("ib_(write|send|read)_(bw|lat)");
  std::smatch m;
  if (std::regex_match(program, m, perftest))
    return fmt::format("weft perf {} --op {}", m[2].str(), m[1].str());
  const bool nccl = program.ends_with("_perf");
  const auto collective = collective_from(nccl ? program.substr(0, program.size() - 5) : program);
  return collective ? fmt::format("weft perf {}", name(*collective)) : "";
}

}  // namespace weft
