// The table of options of other tools, and how weft handles each.
#include "perf/cli/spellings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <regex>
#include <string_view>
#include <vector>

#include "coll/types.h"

namespace weft {
namespace {

// How a command handles another tool's option.
enum class Way {
  kAnswered,     // an error with the equivalent
  kTaken,        // replaced by `here`
  kIgnored,      // dropped with its value, with a warning
  kFlagIgnored,  // dropped with a warning; has no value
};
using enum Way;

struct Spelling {
  std::string_view command;  // the last word of the command, or kPair; empty: every command
  std::string_view typed;    // with its hyphens
  std::string_view here;     // weft's option; empty: none, and `about` says why
  std::string_view about = "";
  Way way = kAnswered;
};

constexpr std::string_view kPair = "bw|lat";

constexpr std::string_view kEnds =
    "a launcher starts both ends, as in `weft launch -N 2 --hosts 2 -- weft perf bw --op tcp` "
    "(perftest's -N needs nothing in its place: the best 100 ms are the peak)";

constexpr std::string_view kKernels = "it chooses among NCCL's kernels";
constexpr std::string_view kPeak = "the best 100 ms are the peak, and cost nothing";
constexpr std::string_view kByTcp = "connections are made over TCP, not by rdma_cm";
constexpr std::string_view kReliable = "queue pairs are RC, from one rank to one other";
constexpr std::string_view kHeader = "the device chooses hop limit and flow label";
constexpr std::string_view kOneMessage = "there is one message at a time";
constexpr std::string_view kBothWays =
    "messages go to and fro; `weft perf bw -b` has both ways at once";
constexpr std::string_view kOuts = "the devices' most reads and atomics are used";
constexpr std::string_view kPolls = "completions are polled as they arrive";
constexpr std::string_view kPercentiles = "--json has the percentiles";
constexpr std::string_view kNoLimit = "rates are not limited";

constexpr Spelling kSpellings[] = {
    {"", "-n", "-N", "ranks"},
    {"", "--np", "-N", "ranks"},
    // nccl-tests; `weft perf COLLECTIVE` has its other short options
    {"perf", "--minbytes", "--begin", "", kTaken},
    {"perf", "--maxbytes", "--end", "", kTaken},
    {"perf", "--stepbytes", "--step", "", kTaken},
    {"perf", "--stepfactor", "--factor", "", kTaken},
    {"perf", "--warmup_iters", "--warm-up", "", kTaken},
    {"perf", "--datatype", "--type", "", kTaken},
    {"perf", "--agg_iters", "--aggregate", "", kTaken},
    {"perf", "--run_cycles", "--run-cycles", "", kTaken},
    {"perf", "--per_iter_timing", "--per-iteration", "", kTaken},
    {"perf", "--per_iter_skip", "--skip-iterations", "", kTaken},
    {"perf", "--report_timestamps", "--timestamps", "", kTaken},
    {"perf", "--output_file", "--nccl-json", "", kTaken},
    {"perf", "--local_register", "--register", "", kTaken},
    {"perf", "--timeout", "--timeout-s", "", kTaken},
    {"perf", "-y", "", "there is no CUDA stream", kIgnored},
    {"perf", "--stream_null", "", "there is no CUDA stream", kIgnored},
    {"perf", "-G", "", "there are no CUDA graphs", kIgnored},
    {"perf", "--cudagraph", "", "there are no CUDA graphs", kIgnored},
    {"perf", "-p", "", "ranks are always set up in parallel", kIgnored},
    {"perf", "--parallel_init", "", "ranks are always set up in parallel", kIgnored},
    {"perf", "-C", "", "the time of the CPU is that of the operation", kIgnored},
    {"perf", "--report_cputime", "", "the time of the CPU is that of the operation", kIgnored},
    {"perf", "-D", "", kKernels, kIgnored},
    {"perf", "--device_implementation", "", kKernels, kIgnored},
    {"perf", "-V", "", kKernels, kIgnored},
    {"perf", "--device_cta_count", "", kKernels, kIgnored},
    {"perf", "-x", "", kKernels, kIgnored},
    {"perf", "--cta_policy", "", kKernels, kIgnored},
    {"perf", "--no-check", "", "-c 0 compares nothing"},
    // perftest
    {kPair, "--data_validation", "--check", "", kTaken},
    {kPair, "--data_validation_debug", "--check", "", kTaken},
    {kPair, "-T", "--tclass", "", kTaken},
    {kPair, "--tos", "--tclass", "", kTaken},
    {kPair, "--out_json_file", "--json", "", kTaken},
    {kPair, "--out_json", "", "--json FILE writes a report (weft.pair/1)", kFlagIgnored},
    {"bw", "--limit_bw", "--min-rate", "", kTaken},
    {"bw", "--limit_msgrate", "--min-msgrate", "", kTaken},
    {kPair, "-N", "", kEnds},
    {kPair, "--ranks", "", kEnds},
    {kPair, "--hosts", "", kEnds},
    {kPair, "--rails", "", kEnds},
    {kPair, "--noPeak", "", kPeak, kFlagIgnored},
    {kPair, "-F", "", "no counter of the CPU's frequency is used", kFlagIgnored},
    {kPair, "--CPU-freq", "", "no counter of the CPU's frequency is used", kFlagIgnored},
    {kPair, "-R", "", kByTcp, kFlagIgnored},
    {kPair, "--rdma_cm", "", kByTcp, kFlagIgnored},
    {kPair, "-z", "", kByTcp, kFlagIgnored},
    {kPair, "--comm_rdma_cm", "", kByTcp, kFlagIgnored},
    {kPair, "-c", "", kReliable, kIgnored},
    {kPair, "--connection", "", kReliable, kIgnored},
    {kPair, "-u", "", "WEFT_VERBS_TIMEOUT sets the time-out of a queue pair", kIgnored},
    {kPair, "--qp-timeout", "", "WEFT_VERBS_TIMEOUT sets the time-out of a queue pair", kIgnored},
    {kPair, "--retry_count", "", "WEFT_VERBS_RETRY_COUNT sets it", kIgnored},
    {kPair, "--pkey_index", "", "WEFT_VERBS_PKEY names the partition", kIgnored},
    {kPair, "--disable_pcie_relaxed", "", "WEFT_VERBS_RELAXED_ORDERING=0 does it", kFlagIgnored},
    {kPair, "--use_hugepages", "", "WEFT_VERBS_HUGE_PAGES sets it for weft's own", kFlagIgnored},
    {kPair, "-L", "", kHeader, kIgnored},
    {kPair, "--hop_limit", "", kHeader, kIgnored},
    {kPair, "--flow_label", "", kHeader, kIgnored},
    {"bw", "-r", "", "receives are as many as sends, -t", kIgnored},
    {"bw", "--rx-depth", "", "receives are as many as sends, -t", kIgnored},
    {kPair, "--recv_post_list", "", "receives are posted with sends, -l", kIgnored},
    {kPair, "--cqe_poll", "", kPolls, kIgnored},
    {"lat", "-r", "", kOneMessage, kIgnored},
    {"lat", "--rx-depth", "", kOneMessage, kIgnored},
    {"lat", "-t", "", kOneMessage, kIgnored},
    {"lat", "--tx-depth", "", kOneMessage, kIgnored},
    {"lat", "-l", "", kOneMessage, kIgnored},
    {"lat", "--post_list", "", kOneMessage, kIgnored},
    {"lat", "-q", "", "there is one queue pair", kIgnored},
    {"lat", "--qp", "", "there is one queue pair", kIgnored},
    {"lat", "--bidirectional", "", kBothWays, kFlagIgnored},
    {"lat", "-b", "", kBothWays, kFlagIgnored},
    {"lat", "--report_gbits", "", "times are in microseconds; `weft perf bw` has rates",
     kFlagIgnored},
    {"lat", "-w", "", "`weft perf bw -w` judges rates", kIgnored},
    {"lat", "--limit_bw", "", "`weft perf bw -w` judges rates", kIgnored},
    {"lat", "-y", "", "`weft perf bw -y` judges rates", kIgnored},
    {"lat", "--limit_msgrate", "", "`weft perf bw -y` judges rates", kIgnored},
    {kPair, "--latency_gap", "", "each message follows the one before at once", kIgnored},
    {kPair, "-o", "", kOuts, kIgnored},
    {kPair, "--outs", "", kOuts, kIgnored},
    {kPair, "-A", "", "atomics are not tested", kIgnored},
    {kPair, "--atomic_type", "", "atomics are not tested", kIgnored},
    {kPair, "-g", "", kReliable, kFlagIgnored},
    {kPair, "--mcg", "", kReliable, kFlagIgnored},
    {kPair, "-M", "", kReliable, kIgnored},
    {kPair, "--MGID", "", kReliable, kIgnored},
    {kPair, "-X", "", "completions come to one vector", kIgnored},
    {kPair, "--vector", "", "completions come to one vector", kIgnored},
    {kPair, "-O", "", "a test uses one port; `weft launch` starts several pairs", kFlagIgnored},
    {kPair, "--dualport", "", "a test uses one port; `weft launch` starts several pairs",
     kFlagIgnored},
    {kPair, "-C", "", "times are in microseconds", kFlagIgnored},
    {kPair, "--report-cycles", "", "times are in microseconds", kFlagIgnored},
    {kPair, "-H", "", kPercentiles, kFlagIgnored},
    {kPair, "--report-histogram", "", kPercentiles, kFlagIgnored},
    {kPair, "--report-histogrm", "", kPercentiles, kFlagIgnored},
    {kPair, "-U", "", kPercentiles, kFlagIgnored},
    {kPair, "--report-unsorted", "", kPercentiles, kFlagIgnored},
    {kPair, "-W", "", "--ports prints all counters of the port that moved", kIgnored},
    {kPair, "--report-counters", "", "--ports prints all counters of the port that moved",
     kIgnored},
    {kPair, "--report-both", "", "-b adds both ways up, --json has each", kFlagIgnored},
    {kPair, "--report-per-port", "", "a test uses one port", kFlagIgnored},
    {kPair, "--cpu_util", "", "the use of the CPU is not reported", kFlagIgnored},
    {kPair, "--output", "", "--json FILE has every number", kIgnored},
    {kPair, "-f", "", "-D measures from the first message on, without a margin", kIgnored},
    {kPair, "--margin", "", "-D measures from the first message on, without a margin", kIgnored},
    {kPair, "--run_infinitely", "", "--duration has the seconds of each size", kFlagIgnored},
    {kPair, "--use_cuda_dmabuf", "", "--use_cuda uses dma-buf if supported", kFlagIgnored},
    {kPair, "--rate_limit", "", kNoLimit, kIgnored},
    {kPair, "--rate_units", "", kNoLimit, kIgnored},
    {kPair, "--rate_limit_type", "", kNoLimit, kIgnored},
    {kPair, "--burst_size", "", kNoLimit, kIgnored},
    {kPair, "--typical_pkt_size", "", kNoLimit, kIgnored},
    {kPair, "--pin_cores", "", "weft launch and mpirun bind ranks to cores", kIgnored},
    {kPair, "--numa_node", "", "weft launch and mpirun bind ranks to cores", kIgnored},
    {kPair, "--disable_numa", "", "memory is where the rank runs", kFlagIgnored},
    {kPair, "--disable_dynamic_polling", "", kPolls, kFlagIgnored},
    {kPair, "--write_with_imm", "", "a message has no immediate data", kFlagIgnored},
    {kPair, "--send_with_imm", "", "a message has no immediate data", kFlagIgnored},
    {kPair, "--use_old_post_send", "", "WEFT_VERBS_WR=0 does it", kFlagIgnored},
    {kPair, "--use-srq", "", "each queue pair has its own receives", kFlagIgnored},
    {kPair, "--odp", "", "memory is registered before the test", kFlagIgnored},
    {kPair, "--mr_per_qp", "", "queue pairs share one registration", kFlagIgnored},
    {kPair, "--dont_xchg_versions", "", "both ends compare their flags", kFlagIgnored},
    {kPair, "--perform_warm_up", "", "there is always a warm-up", kFlagIgnored},
};

bool of_command(const Spelling& s, std::string_view command) {
  return s.command == command || (s.command == kPair && (command == "bw" || command == "lat"));
}

}  // namespace

std::string spelling_here(const CLI::App& command, const std::string& typed) {
  const std::string_view flag = std::string_view(typed).substr(0, typed.find('='));
  for (const Spelling& s : kSpellings) {
    if (s.typed != flag || (!s.command.empty() && !of_command(s, command.get_name()))) continue;
    if (s.here.empty()) return fmt::format("{}: {}", s.typed, s.about);
    if (command.get_option_no_throw(std::string(s.here)) == nullptr) continue;
    return fmt::format("{} is {} here{}", s.typed, s.here,
                       s.about.empty() ? "" : fmt::format(" ({})", s.about));
  }
  return "";
}

namespace {

// Returns the row for a typed option, which may include a value: "--option=value" or "-Ovalue".
const Spelling* known(std::string_view command, std::string_view word) {
  const auto* const found = std::ranges::find_if(kSpellings, [&](const Spelling& s) {
    if (s.way == kAnswered || !of_command(s, command) || !word.starts_with(s.typed)) return false;
    const std::string_view rest = word.substr(s.typed.size());
    return rest.empty() || rest[0] == '=' ||
           (s.way == kIgnored && s.typed.size() == 2 && rest[0] >= '0' && rest[0] <= '9');
  });
  return found == std::end(kSpellings) ? nullptr : found;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// Letters of `weft perf COLLECTIVE` that exist for nccl-tests' scripts.
constexpr std::string_view kOfNcclTests = "iIKmazuSMJTR";

}  // namespace

std::vector<std::string> take_foreign(std::vector<char*>& arguments) {
  static std::list<std::string> kept;  // owns the new words in `arguments`
  std::vector<std::string> warnings;
  const auto word = [&](std::size_t i) { return std::string_view(arguments[i]); };
  if (arguments.size() < 3 || word(1) != "perf") return warnings;
  const bool pair = word(2) == "bw" || word(2) == "lat";
  if (!pair && !collective_from(word(2))) return warnings;
  const std::string_view command = pair ? word(2) : word(1);
  std::string_view cycles;  // the value of -N
  bool of_nccl_tests = false;
  for (std::size_t i = 3; i < arguments.size() && word(i) != "--"; ++i) {
    const auto next = [&] { return i + 1 < arguments.size() ? word(i + 1) : ""; };
    if (pair && word(i) == "-N" && !is_number(next())) {
      warnings.push_back(fmt::format("-N is ignored: {}", kPeak));
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i--));
      continue;
    }
    if (word(i) == "-N") cycles = next();
    const Spelling* s = known(command, word(i));
    if (s == nullptr) {
      of_nccl_tests |= word(i).size() >= 2 && word(i)[0] == '-' &&
                       kOfNcclTests.find(word(i)[1]) != kOfNcclTests.npos;
      continue;
    }
    of_nccl_tests = true;
    const std::string_view rest = word(i).substr(s->typed.size());
    if (s->way == kTaken) {
      kept.push_back(fmt::format("{}{}", s->here, rest));
      arguments[i] = kept.back().data();
      continue;
    }
    const bool value = s->way == kIgnored && rest.empty() && !next().empty();
    warnings.push_back(fmt::format("{}{}{} is ignored: {}", word(i), value ? " " : "",
                                   value ? next() : "", s->about));
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i--);
    arguments.erase(at, at + (value ? 2 : 1));
  }
  if (!pair && of_nccl_tests && !cycles.empty())
    warnings.push_back(
        fmt::format("-N {} is the number of ranks; nccl-tests' -N is --run-cycles here", cycles));
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
