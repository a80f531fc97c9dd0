#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "coll/jobs/report.h"
#include "tests/perf/validate/report/random_report.h"
#include "tests/support/process/read_file.h"
#include "tests/support/process/temporary_folder.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Violations of the text format, version 0.0.4; "" if there are none. Each family has one HELP and
// one TYPE before its samples, which form one group with distinct labels.
std::string fault_of(const std::string& text) {
  static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ([^\\\\\n]|\\\\\\\\|\\\\n)*");
  static const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|untyped)");
  static const std::regex sample("([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{[^\n]*\\})? (\\S+)");
  static const std::regex labels(
      "\\{([a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\]|\\\\[\\\\\"n])*\")"
      "(,[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\]|\\\\[\\\\\"n])*\")*\\}");
  static const std::regex number("[-+]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?");
  if (text.empty() || text.back() != '\n') return "does not end in a line end";
  std::set<std::string> families, seen;
  std::string family;
  bool typed = false;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      family = match[1];
      typed = false;
      if (!families.insert(family).second) return "a family twice: " + line;
    } else if (std::regex_match(line, match, type)) {
      if (match[1] != family) return "a type without a help: " + line;
      typed = true;
    } else if (std::regex_match(line, match, sample)) {
      if (!typed || match[1] != family) return "a sample outside its family: " + line;
      if (match[2].matched && !std::regex_match(match[2].str(), labels)) return "labels: " + line;
      if (!std::regex_match(match[3].str(), number)) return "no number: " + line;
      if (!seen.insert(match[1].str() + match[2].str()).second) return "a sample twice: " + line;
    } else {
      return "no line of the format: " + line;
    }
  }
  return "";
}

TEST(ReportPrometheus, TheGrammarRefusesWhatIsWrong) {
  const std::string head = "# HELP a b\n# TYPE a gauge\n";
  EXPECT_EQ(fault_of(head + "a{x=\"1\",y=\"\\\"\"} 1e-06\na 3\n"), "");
  EXPECT_NE(fault_of("a 3\n"), "");
  EXPECT_NE(fault_of(head + "a nan\n"), "");
  EXPECT_NE(fault_of(head + "a{x=\"\"\"} 1\n"), "");
  EXPECT_NE(fault_of(head + "a 1\na 1\n"), "");
  EXPECT_NE(fault_of(head + "b 1\n"), "");
  EXPECT_NE(fault_of(head + "a 1"), "");
  EXPECT_NE(fault_of(head + head + "a 1\n"), "");
}

TEST(ReportPrometheus, IsValidWhateverIsFound) {
  EXPECT_EQ(fault_of(to_prometheus(healthy_report())), "");
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    ASSERT_EQ(fault_of(to_prometheus(RandomReport(seed).draw())), "") << seed;
}

TEST(ReportPrometheus, HasTheRunAndItsPorts) {
  const std::string text = to_prometheus(slow_port_report());
  EXPECT_THAT(text, HasSubstr("# TYPE weft_validate_verdict gauge\nweft_validate_verdict 2\n"));
  EXPECT_THAT(text, HasSubstr("weft_validate_findings{severity=\"critical\"} 1\n"));
  const std::string slow =
      "{check=\"port-rate\",severity=\"critical\",place=\"port\",host=\"h3\",rail=\"1\","
      "direction=\"transmit\"";
  EXPECT_THAT(text,
              HasSubstr("weft_validate_finding_certainty" + slow + ",certainty=\"likely\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weft_validate_finding_value" + slow + ",unit=\"gbps\"} 187\n"));
  EXPECT_THAT(text, HasSubstr("weft_validate_finding_expected" + slow + ",unit=\"gbps\"} 392\n"));
  EXPECT_THAT(text,
              HasSubstr("weft_validate_port_rate_bits_per_second{host=\"h3\",rail=\"1\",device="
                        "\"mlx5_1\",direction=\"transmit\"} 187000000000\n"));
  EXPECT_THAT(text, HasSubstr("weft_validate_counter_change{host=\"h3\",rail=\"1\",device="
                              "\"mlx5_1\",counter=\"hw.out_of_sequence\"} 98\n"));
  EXPECT_THAT(text, HasSubstr("weft_validate_checks{checked=\"true\"} 8\n"));
}

TEST(ReportPrometheus, AHealthyHostHasFewLines) {
  const std::string text = to_prometheus(healthy_report(6, 8));
  EXPECT_LE(std::ranges::count(text, '\n'), 6 * 40);
  EXPECT_THAT(text, Not(HasSubstr("counter=")));  // traffic alone
}

// A counter that is "N/A" is not 0, and neither is a rate that was not measured.
TEST(ReportPrometheus, AbsentIsOmitted) {
  EXPECT_THAT(to_prometheus(slow_port_report()), Not(HasSubstr("roce_slow_restart")));
  const std::string text = to_prometheus(job_failed_report());
  EXPECT_THAT(text, HasSubstr("weft_validate_verdict 3\n"));
  for (const char* family :
       {"port_rate", "port_latency", "port_loss", "smallest_loss", "collective", "counter_change"})
    EXPECT_THAT(text, Not(HasSubstr(family)));
  Report reset = slow_port_report();
  reset.facts.hosts[3].ports[1].after["hw.out_of_sequence"].value = 3;  // it fell: not known
  EXPECT_THAT(to_prometheus(reset), Not(HasSubstr("hw.out_of_sequence")));
}

TEST(ReportPrometheus, ReplacesTheOldFile) {
  testing::TemporaryFolder folder;
  const std::string path = folder / "weft.prom";
  std::ofstream(path) << "old";
  std::ifstream reader(path);  // has the old file open, as node_exporter might
  write_report(path, to_prometheus(slow_port_report()), "--prometheus");
  std::string old;
  reader >> old;
  EXPECT_EQ(old, "old");
  EXPECT_EQ(read_file(path), to_prometheus(slow_port_report()));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++files;
    (void)entry;
  }
  EXPECT_EQ(files, 1);
}

TEST(ReportPrometheus, AFileThatCannotBeWrittenIsNamed) {
  testing::TemporaryFolder folder;
  const std::string path = folder / "none/weft.prom";
  try {
    write_report(path, to_prometheus(healthy_report()), "--prometheus");
    FAIL() << "written";
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), "--prometheus " + path + ": cannot be written: No such file or directory");
  }
}

}  // namespace
}  // namespace weft::fabric
