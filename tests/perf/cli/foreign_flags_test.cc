// Scripts for nccl-tests and perftest: each flag is handled as the page says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "perf/cli/commands.h"
#include "perf/cli/spellings.h"
#include "support/process/read_file.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Every option of nccl-tests 2.19.6 (src/common.cu), and of perftest 26 (July 2026) every option
// that its write, send and read programs take without vendor-specific hardware.
constexpr const char* kNcclTests =
    "-t --nthreads -g --ngpus -b --minbytes -e --maxbytes -i --stepbytes -f --stepfactor -n "
    "--iters "
    "-m --agg_iters -w --warmup_iters -N --run_cycles -p --parallel_init -c --check -o --op -d "
    "--datatype -r --root -z --blocking -y --stream_null -T --timeout -G --cudagraph -C "
    "--report_cputime -S --report_timestamps -J --output_file -a --average -R --local_register -x "
    "--cta_policy -D --device_implementation -V --device_cta_count -M --memory -u --unalign -I "
    "--per_iter_timing -K --per_iter_skip";
constexpr const char* kPerftest =
    "-p --port -d --ib-dev -i --ib-port -m --mtu -s --size -n --iters -t --tx-depth -u "
    "--qp-timeout "
    "-S --sl -x --gid-index -a --all -F --CPU-freq -c --connection -q --qp -e --events -X --vector "
    "-I --inline_size -o --outs -g --mcg -z --comm_rdma_cm -R --rdma_cm -T --tos -L --hop_limit -M "
    "--MGID -r --rx-depth -b --bidirectional -Q --cq-mod -N --noPeak -C --report-cycles -H "
    "--report-histogram -U --report-unsorted -A --atomic_type -O --dualport -l --post_list -D "
    "--duration -f --margin -w --limit_bw -y --limit_msgrate -W --report-counters --run_infinitely "
    "--report_gbits --use-srq --report-both --pkey_index --burst_size --typical_pkt_size "
    "--rate_limit --rate_limit_type --rate_units --output --cpu_util --out_json --out_json_file "
    "--latency_gap --flow_label --retry_count --dont_xchg_versions --use_cuda --use_cuda_dmabuf "
    "--report-per-port --odp --use_hugepages --use_old_post_send --mr_per_qp --recv_post_list "
    "--disable_pcie_relaxed --write_with_imm --send_with_imm --cqe_poll --disable_dynamic_polling "
    "--data_validation --data_validation_debug --pin_cores --numa_node --disable_numa "
    "--perform_warm_up";

struct Taken {
  std::vector<std::string> left, warnings;
};

Taken take(std::vector<std::string> typed) {
  std::vector<char*> arguments;
  for (std::string& word : typed) arguments.push_back(word.data());
  Taken taken;
  taken.warnings = take_foreign(arguments);
  for (const char* word : arguments) taken.left.emplace_back(word);
  return taken;
}

// The flags in the first column of a table of the page, with the text of the second column.
std::vector<std::pair<std::string, std::string>> flags_below(const std::string& title) {
  const std::string page = read_file(WEFT_SOURCE_DIR "/docs/tutorials/moving-from-nccl-or-mpi.md");
  const std::size_t begin = page.find("### " + title + "\n");
  std::istringstream lines(page.substr(begin, page.find("\n###", begin + 1) - begin));
  std::vector<std::pair<std::string, std::string>> all;
  const std::regex row(R"(^\| ([^|]*) \| ([^|]*) \|.*)"), flag("`(--?[A-Za-z][A-Za-z_-]*)`");
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (!std::regex_match(line, m, row)) continue;
    const std::string there = m[1];
    for (std::sregex_iterator f(there.begin(), there.end(), flag), end; f != end; ++f)
      all.emplace_back((*f)[1], m[2]);
  }
  return all;
}

void page_is_true(const std::string& title, std::vector<std::string> command, const char* every) {
  CLI::App app;
  int exit_code = 0;
  add_perf(app, exit_code);
  const CLI::App* parser = app.get_subcommand("perf");
  if (command.back() == "bw") parser = parser->get_subcommand("bw");
  std::set<std::string> told;
  for (const auto& [flag, here] : flags_below(title)) {
    SCOPED_TRACE(flag + ", told to be " + here);
    told.insert(flag);
    std::vector<std::string> typed = command;
    typed.push_back(flag);
    const Taken taken = take(typed);
    if (here == "ignored") {
      EXPECT_EQ(taken.left, command);
      EXPECT_THAT(taken.warnings, ElementsAre(HasSubstr(flag + " is ignored: ")));
      continue;
    }
    ASSERT_EQ(taken.left.size(), command.size() + 1);
    if (flag == "-N") continue;  // the ranks, as the page says
    EXPECT_THAT(taken.warnings, IsEmpty());
    const CLI::Option* option = parser->get_option_no_throw(taken.left.back());
    ASSERT_NE(option, nullptr) << taken.left.back();
    bool same = false;  // equal to one in the second column
    const std::regex name("`(--?[A-Za-z][A-Za-z_-]*)`");
    for (std::sregex_iterator n(here.begin(), here.end(), name), end; n != end; ++n)
      same = same || parser->get_option_no_throw((*n)[1]) == option;
    EXPECT_TRUE(same) << option->get_name(false, true);
  }
  std::istringstream words(every);
  for (std::string word; words >> word;) EXPECT_TRUE(told.contains(word)) << word << " is not told";
  EXPECT_GT(told.size(), 40u);
}

TEST(ForeignFlags, ThePageTellsTheTruthOfNcclTests) {
  page_is_true("Flags of nccl-tests", {"weft", "perf", "all_reduce"}, kNcclTests);
}

TEST(ForeignFlags, ThePageTellsTheTruthOfPerftest) {
  page_is_true("Flags of perftest", {"weft", "perf", "bw"}, kPerftest);
}

// lat has fewer options, so it ignores more of them; none stops a script. The help of both explains
// how one host runs both ends.
TEST(ForeignFlags, EveryFlagOfPerftestIsTakenByLat) {
  CLI::App app;
  int exit_code = 0;
  add_perf(app, exit_code);
  CLI::App* perf = app.get_subcommand("perf");
  for (const char* pair : {"bw", "lat"})
    EXPECT_THAT(perf->get_subcommand(pair)->get_footer(),
                HasSubstr(fmt::format("weft launch -N 2 -- weft perf {} --op shm", pair)));
  const CLI::App* lat = perf->get_subcommand("lat");
  std::istringstream words(kPerftest);
  for (std::string word; words >> word;) {
    const Taken taken = take({"weft", "perf", "lat", word, "host"});
    EXPECT_TRUE(!taken.warnings.empty() || lat->get_option_no_throw(taken.left.at(3)) != nullptr)
        << word;
  }
}

TEST(ForeignFlags, ValuesGoWithTheFlagThatIsIgnored) {
  EXPECT_THAT(take({"weft", "perf", "bw", "-F", "-u", "14", "--report-both", "host"}).left,
              ElementsAre("weft", "perf", "bw", "host"));
  EXPECT_THAT(
      take({"weft", "perf", "all_reduce", "-G1", "-p", "1", "--cudagraph=2", "-n", "3"}).left,
      ElementsAre("weft", "perf", "all_reduce", "-n", "3"));
  EXPECT_THAT(take({"weft", "perf", "all_reduce", "--minbytes=8", "--maxbytes", "64"}).left,
              ElementsAre("weft", "perf", "all_reduce", "--begin=8", "--end", "64"));
}

TEST(ForeignFlags, NIsTheRanksAndIsSaidToBe) {
  const auto said = [](std::vector<std::string> typed) { return take(std::move(typed)).warnings; };
  EXPECT_THAT(said({"weft", "perf", "all_reduce", "-N", "4", "-n", "3"}), IsEmpty());
  for (const char* flag : {"-I", "-S", "-z", "--agg_iters"})
    EXPECT_THAT(
        said({"weft", "perf", "all_reduce", "-N", "4", flag, "1"}),
        ElementsAre(AllOf(HasSubstr("-N 4 is the number of ranks"), HasSubstr("--run-cycles"))));
  // perftest's -N has no value, so a following number is meant for ranks.
  EXPECT_THAT(take({"weft", "perf", "bw", "-N", "host"}).left,
              ElementsAre("weft", "perf", "bw", "host"));
  EXPECT_THAT(take({"weft", "perf", "bw", "-N", "2"}).left,
              ElementsAre("weft", "perf", "bw", "-N", "2"));
}

// Arguments after "--" belong to another program, and other commands have no foreign flags.
TEST(ForeignFlags, OtherProgramsKeepTheirs) {
  EXPECT_THAT(take({"weft", "launch", "--", "weft", "perf", "all_reduce", "-G", "1"}).warnings,
              IsEmpty());
  EXPECT_THAT(take({"weft", "perf", "all_reduce", "--", "-G", "1"}).warnings, IsEmpty());
}

}  // namespace
}  // namespace weft
