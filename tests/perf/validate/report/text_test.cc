#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "perf/validate/report/faults.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/words.h"
#include "tests/perf/validate/report/random_report.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The screen with the registry's remedies replaced by "do: ...".
std::string screen(const Report& report) {
  std::string text;
  bool in_remedy = false;
  for (const std::string& line : lines_of(to_text(report, {}))) {
    const std::size_t at = line.find("do: ");
    const bool begins = at != line.npos && line.find_first_not_of(' ') == at;
    in_remedy = begins || (in_remedy && line.starts_with("               "));
    if (begins) text += line.substr(0, at) + "do: ...\n";
    if (!in_remedy) text += line + "\n";
  }
  return text;
}

constexpr const char* kSeen =
    "  would see    loss >= 2e-6 per packet, rate cuts >= 5 %, 95 % confidence\n";
constexpr const char* kChecked = R"(  checked      8 checks, each at all places that it is for
  not checked  3 checks without data at some places; 2 probes without time in the budget; 1 check
               for other devices or settings
)";
constexpr const char* kCollectives =
    R"(  collectives  36 cases run, 0 wrong, 2 left out; all_reduce ring reaches 340 of the 352 Gb/s busbw
               that the pairs allow, limited by h1 rail 0 transmit
)";
constexpr const char* kAbout =
    "4 hosts x 2 rails, 8 ranks, verbs; 21.4 s of 60 s; 2026-11-25T04:00:00Z\n";

std::string covered(bool seen = true) {
  return std::string("\ncovered\n") + (seen ? kSeen : "") + kChecked + kCollectives;
}

std::string closing(int code) {
  return "\nexit code " + std::to_string(code) + "; --verbose has the rest\n";
}

TEST(ReportText, Healthy) {
  EXPECT_EQ(
      screen(healthy_report()),
      "verdict: OK - no fault found; would have seen loss >= 2e-6 per packet, rate cuts >= 5 %\n" +
          std::string(kAbout) + covered(false) + closing(0));
}

constexpr const char* kSlowPort = R"(
causes, most costly to a job first
  1. CRITICAL h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s
              likely, 183 to 191 Gb/s at 95 %; expected: the port's rate, less headers [port-rate]
              do: ...
              also: sending: packets sent again: 98, 0 expected [retransmits]
)";

TEST(ReportText, SaysHowManyFlowsFillAPort) {
  Report report = healthy_report();
  EXPECT_THAT(to_text(report, {}), Not(HasSubstr("flows a port")));
  report.streams = 4;
  EXPECT_THAT(to_text(report, {}), HasSubstr("\n  rates        with 4 flows a port\n"));
}

TEST(ReportText, OneSlowPort) {
  EXPECT_EQ(screen(slow_port_report()),
            "verdict: CRITICAL - h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s\n" +
                std::string(kAbout) + kSlowPort + covered() + closing(2));
}

TEST(ReportText, Loss) {
  EXPECT_EQ(screen(loss_report()),
            "verdict: CRITICAL - h1 rail 0 (mlx5_0) loses 1.2e-4 of the packets that the port "
            "receives\n" +
                std::string(kAbout) + R"(
causes, most costly to a job first
  1. CRITICAL h1 rail 0 (mlx5_0) loses 1.2e-4 of the packets that the port receives
              likely, 9e-5 to 1.6e-4 per packet at 95 % [loss]
              do: ...
)" + covered() + closing(2));
}

TEST(ReportText, TwoFaults) {
  EXPECT_EQ(
      screen(two_faults_report()),
      "verdict: CRITICAL - h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s; 1 more cause\n" +
          std::string(kAbout) + kSlowPort +
          R"(  2. CRITICAL h1 rail 0 (mlx5_0) loses 1.2e-4 of the packets that the port receives
              likely, 9e-5 to 1.6e-4 per packet at 95 % [loss]
              do: ...
)" + covered() +
          closing(2));
}

TEST(ReportText, WhatIsNotKnownDoesNotHideAWarning) {
  EXPECT_EQ(screen(warn_and_unknown_report()),
            "verdict: WARN - h2 rail 0 (mlx5_0): firmware 22.36.1010, 28.39.1002 expected\n" +
                std::string(kAbout) + R"(
causes, most costly to a job first, and unknowns
  1. WARN     h2 rail 0 (mlx5_0): firmware 22.36.1010, 28.39.1002 expected
              certain [firmware]
              do: ...
  2. UNKNOWN  h0 rail 1 (mlx5_1): not known: link stays up: ib.link_downed stands at its ceiling of
              255, and 1 like it
              not known [link-flaps]
              do: ...
)" + covered() + closing(1));
}

TEST(ReportText, ASlowTesterBlamesNoLink) {
  EXPECT_EQ(screen(tester_report()),
            "verdict: TESTER - the tester on h2 waits for a core 41 % of the time, at most 2 % "
            "expected; no link\nis judged\n" +
                std::string(kAbout) + R"(
causes, most costly to a job first
  1. TESTER   the tester on h2 waits for a core 41 % of the time, at most 2 % expected
              certain [tester-starved]
              do: ...
)" + covered() + closing(4));
}

TEST(ReportText, AnEmulatedRunSaysSoInItsVerdict) {
  const std::string text = to_text(emulated_report(), {});
  EXPECT_THAT(text, StartsWith("verdict: OK (emulated) - no fault found; "));
  EXPECT_THAT(text, HasSubstr("\nemulated: hosts share a kernel and its cores; rates are not those "
                              "of a fabric\n"));
  Report simulated = slow_port_report();
  simulated.simulated = true;
  EXPECT_THAT(to_text(simulated, {}), StartsWith("verdict: CRITICAL (simulated) - h3 rail 1"));
}

TEST(ReportText, AFailedJob) {
  EXPECT_EQ(screen(job_failed_report()),
            "verdict: UNKNOWN - the job failed: peer failed: rank 5 on host h2: connection closed "
            "(while at rate)\n" +
                std::string(kAbout) + "\ncovered\n  checked      nothing\n" + closing(3));
}

TEST(ReportText, AFaultThatWasFoundBeforeTheJobFailedComesFirst) {
  Report report = slow_port_report();
  report.failure = "peer failed: rank 5";
  const std::string text = to_text(report, {});
  EXPECT_THAT(text, StartsWith("verdict: CRITICAL - h3 rail 1 (mlx5_1) sends"));
  EXPECT_THAT(text, HasSubstr("\nthe job failed: peer failed: rank 5\n"));
}

// The words of a text without line breaks and indentation.
std::string words_of(const std::string& text) {
  std::string words;
  for (const std::string& line : lines_of(text))
    words += line.substr(std::min(line.size(), line.find_first_not_of(' '))) + " ";
  return words;
}

TEST(ReportText, ARemedyIsWholeAndForTheCaseFound) {
  Report report = slow_port_report();
  EXPECT_THAT(words_of(to_text(report, {})), HasSubstr("do: Look at the host first: "));
  report.judgement.findings[0].where.direction = Direction::kReceive;
  EXPECT_THAT(words_of(to_text(report, {})), HasSubstr("do: Look at the switch port first: "));
  for (const Check& check : checks()) {
    Finding f =
        port_finding(std::string(check.id), "h3", 1, Direction::kReceive, 0.25, 0.75, Unit::kShare);
    for (const bool unknown : {false, true}) {
      f.unknown = unknown;
      report.judgement.findings = {f};
      ASSERT_FALSE(remedy_of(f).empty()) << check.id;
      EXPECT_THAT(words_of(to_text(report, {})), HasSubstr("do: " + remedy_of(f))) << check.id;
    }
  }
}

TEST(ReportText, AnExpectedRateHasItsOrigin) {
  Report report = slow_port_report();
  const auto origin = [&] { return words_of(to_text(report, {})); };
  for (FleetHost& host : report.hosts)
    for (PortInfo& port : host.ports) port.expected_gbps = 392;
  report.policy.rate_gbps = 400;
  EXPECT_THAT(origin(), HasSubstr("at 95 %; expected: declared 400 Gb/s, less headers 392 ["));
  report.policy.rate_gbps.reset();
  report.declared_gbps = 400;
  EXPECT_THAT(origin(), HasSubstr("expected: declared 400 Gb/s, less headers 392 ["));
  for (FleetHost& host : report.hosts)
    for (PortInfo& port : host.ports) port.expected_gbps = 0;
  EXPECT_THAT(origin(), HasSubstr("at 95 %; expected: the rate of other ports ["));
}

TEST(ReportText, VerboseHasAllFindingsAndThePairs) {
  TextOptions options;
  options.verbose = true;
  const std::string text = to_text(slow_port_report(), options);
  EXPECT_THAT(text, HasSubstr("\nall findings\n"));
  EXPECT_THAT(text, HasSubstr("rate of h3 rail 1 187 Gb/s, 392 expected"));
  EXPECT_THAT(text, HasSubstr(R"(
rail 1: Gb/s from (row) to (column); -: not measured
       h0   h1   h2   h3
  h0    -  392  392  392
  h1  392    -  392  392
  h2  392  392    -  392
  h3  187  187  187    -
)"));
  EXPECT_THAT(text, HasSubstr("h3 rail 1 hw.out_of_sequence"));
  EXPECT_THAT(text, Not(HasSubstr("h0 rail 0 hw.out_of_sequence")));
}

TEST(ReportText, ColoursTakeNoColumns) {
  TextOptions options;
  options.colour = true;
  std::string text = to_text(two_faults_report(), options), plain;
  EXPECT_THAT(text, StartsWith("verdict: \033[31;1mCRITICAL\033[0m - "));
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\033') at = text.find('m', at) + 1;
    plain += text[at++];
  }
  EXPECT_EQ(plain, to_text(two_faults_report(), {}));
}

// For all findings and host names: one screen, no line too long, no control characters.
TEST(ReportText, IsOneScreen) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Report report = RandomReport(seed).draw();
    for (const int columns : {100, 80}) {
      TextOptions options;
      options.columns = columns;
      const std::string text = to_text(report, options);
      const std::vector<std::string> lines = lines_of(text);
      ASSERT_LE(lines.size(), 44U) << "seed " << seed << "\n" << text;
      std::string one_line = text;  // lines may break at any blank
      std::ranges::replace(one_line, '\n', ' ');
      ASSERT_THAT(one_line, StartsWith("verdict: " + verdict_in_words(report) + " - ")) << seed;
      for (const std::string& line : lines) {
        ASSERT_LE(columns_of(line), static_cast<std::size_t>(columns)) << seed << ": " << line;
        for (const char c : line) ASSERT_GE(static_cast<unsigned char>(c), 0x20) << seed << line;
      }
    }
  }
}

TEST(ReportText, VerboseLinesFitToo) {
  TextOptions options;
  options.verbose = true;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    for (const std::string& line : lines_of(to_text(RandomReport(seed).draw(), options)))
      ASSERT_LE(columns_of(line), 100U) << seed << ": " << line;
}

TEST(ReportText, ManyFaultsAreCounted) {
  Report report = slow_port_report();
  for (int i = 0; i < 50; ++i)
    report.judgement.findings.push_back(port_finding("port-rate", "h" + std::to_string(i), 0,
                                                     Direction::kReceive, 100, 392, Unit::kGbps));
  const std::string text = to_text(report, {});
  EXPECT_THAT(text, HasSubstr("; 50 more causes\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("and [0-9]+ more: --verbose"));
}

TEST(ReportLines, BreakWordsThatDoNotFit) {
  EXPECT_EQ(wrap("a bb ccc", 6, "> "), (std::vector<std::string>{"> a bb", "  ccc"}));
  EXPECT_EQ(wrap("abcdefghij k", 6, "> "),
            (std::vector<std::string>{"> abcd", "  efgh", "  ij k"}));
  EXPECT_EQ(wrap("", 6, "> "), (std::vector<std::string>{"> "}));
  EXPECT_EQ(at_most({"abc", "defgh", "i"}, 2, 8), (std::vector<std::string>{"abc", "defg ..."}));
}

TEST(ReportWords, Numbers) {
  EXPECT_EQ(three_digits(392), "392");
  EXPECT_EQ(three_digits(99.96), "100");
  EXPECT_EQ(three_digits(9.411), "9.41");
  EXPECT_EQ(three_digits(0.5), "0.5");
  EXPECT_EQ(three_digits(0), "0");
  EXPECT_EQ(small_share(1.2e-4), "1.2e-4");
  EXPECT_EQ(small_share(2e-6), "2e-6");
  EXPECT_EQ(small_share(0.0123), "1.23 %");
  EXPECT_EQ(word_of(certainty_of(1)), "certain");
  EXPECT_EQ(word_of(certainty_of(0.95)), "likely");
  EXPECT_EQ(word_of(certainty_of(0.949)), "possible");
}

// A report file may have any number in place of a count.
TEST(ReportWords, CasesThatAreNoCountAreStillSaid) {
  Finding f;
  f.id = "collective-wrong";
  for (const auto& [value, words] : std::map<double, std::string>{
           {1, "in 1 case"}, {3, "in 3 cases"}, {1e300, "in 1e+300 cases"}, {-2, "in -2 cases"}}) {
    f.value = value;
    EXPECT_EQ(in_words(f), "a collective: wrong result " + words);
  }
  f.value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(in_words(f), "a collective: wrong result in - cases");
}

// The kind of place of checks that differ only in this.
PlaceKind kind_of(std::string_view id) {
  return id == "host-rate"     ? PlaceKind::kHost
         : id == "path-rate"   ? PlaceKind::kPath
         : id == "rail-rate"   ? PlaceKind::kRail
         : id == "switch-rate" ? PlaceKind::kSwitch
         : id == "fleet-rate"  ? PlaceKind::kFleet
                               : PlaceKind::kPort;
}

TEST(ReportWords, NoCheckIsWithoutASentence) {
  std::set<std::string> sentences;
  for (const Check& check : checks()) {
    EXPECT_TRUE(has_sentence(check.id)) << check.id;
    for (const bool unknown : {false, true}) {
      Finding f = port_finding(std::string(check.id), "h3", 1, Direction::kTransmit, 0.25, 0.75,
                               Unit::kShare);
      f.where.peer = "h5";
      f.where.kind = kind_of(check.id);
      if (f.where.kind == PlaceKind::kHost) f.where.rail = -1, f.where.device.clear();
      f.unknown = unknown;
      const std::string words = in_words(f);
      EXPECT_FALSE(words.empty()) << check.id;
      EXPECT_THAT(words, Not(HasSubstr("{"))) << check.id;
      if (unknown) continue;
      EXPECT_TRUE(sentences.insert(words).second) << check.id << ": " << words;
    }
  }
}

TEST(ReportWords, AnUnknownCheckHasItsIdAsWords) {
  const Finding f = port_finding("warp-core", "h3", 1, Direction::kBoth, 0.25, 0.75, Unit::kShare);
  EXPECT_EQ(in_words(f), "h3 rail 1 (mlx5_1): warp core: 25 %, 75 % expected");
}

TEST(ReportWords, ProbesThatWereLeftOutHaveTheirReason) {
  Report report = healthy_report();
  report.budget_s = 60;
  report.plan.left_out = {Probe::kEntropy};
  report.plan.not_here = {Probe::kIncast, Probe::kLoopback};
  const std::string others = "not with these hosts, rails and ports: incast, loopback";
  EXPECT_EQ(left_out_in_words(report), "no time in the budget of 60 s: entropy; " + others);
  report.plan.left_out.clear();
  EXPECT_EQ(left_out_in_words(report), others);
  EXPECT_EQ(left_out_in_words({}), "");
}

TEST(ReportWords, Places) {
  const auto rate = [](Where where) {
    Finding f = port_finding("port-rate", "h3", 1, Direction::kBoth, 40, 98, Unit::kGbps);
    f.where = std::move(where);
    return in_words(f);
  };
  EXPECT_EQ(rate({PlaceKind::kPort, "h3", 1, Direction::kReceive, "", "mlx5_1"}),
            "h3 rail 1 (mlx5_1) receives at 40 of 98 Gb/s");
  EXPECT_EQ(rate({PlaceKind::kHost, "h3", -1, Direction::kBoth, "", ""}),
            "h3 sends and receives at 40 of 98 Gb/s");
  EXPECT_EQ(rate({PlaceKind::kPath, "h3", 1, Direction::kTransmit, "h5", ""}),
            "h3 -> h5 on rail 1 passes 40 of 98 Gb/s");
  EXPECT_EQ(rate({PlaceKind::kRail, "", 1, Direction::kBoth, "", ""}),
            "rail 1 carries 40 of 98 Gb/s a port");
  EXPECT_EQ(rate({PlaceKind::kSwitch, "", 1, Direction::kBoth, "", ""}),
            "the switch of rail 1 carries 40 of 98 Gb/s a port");
  EXPECT_EQ(rate({}), "every port runs at 40 of 98 Gb/s");
}

TEST(ReportWords, AFindingJoinsTheFaultThatExplainsIt) {
  Report report = slow_port_report();
  Finding timeouts = report.judgement.findings[1];  // its cause is itself explained
  timeouts.id = "timeouts";
  timeouts.explained_by = "retransmits";
  report.judgement.findings.push_back(timeouts);
  std::vector<Fault> faults = faults_of(report);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].also.size(), 2U);
  report.judgement.findings[1].explained_by.clear();
  faults = faults_of(report);
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[1].also.size(), 1U);
  // The index selects one of several findings of a check.
  report.judgement.findings.push_back(report.judgement.findings[0]);
  report.judgement.findings[1].explained_by = "port-rate";
  report.judgement.findings[1].reason = 3;
  faults = faults_of(report);
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[1].also.size(), 2U);
  report.judgement.findings[1].reason = -1;
  report.judgement.findings.pop_back();
  // In a cycle, one of the findings is the fault.
  report.judgement.findings[0].explained_by = "timeouts";
  report.judgement.findings[1].explained_by = "port-rate";
  EXPECT_EQ(faults_of(report).size(), 1U);
}

}  // namespace
}  // namespace weft::fabric
