// Consistency of the command line: rules for names, help and pages of all commands, checked on the
// output of `weft completion json`.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/process/read_file.h"
#include "support/process/shell.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// perftest's own spellings, which `perf bw` and `lat` accept unchanged.
const std::set<std::string> kPerftest = {"--inline_size", "--post_list", "--report_gbits",
                                         "--use_cuda"};

json commands() {
  static const json all = json::parse(run(WEFT_BINARY " completion json").text)["commands"];
  return all;
}

// Calls check(command, option) for every option of every command.
template <class Check>
void for_each_option(const Check& check) {
  for (const json& c : commands())
    for (const json& o : c["options"]) check(c["command"].get<std::string>(), o);
}

std::string longest(const json& option) {
  std::string name = option["position"];
  for (const std::string all : option["names"])
    if (all.size() > name.size()) name = all;
  return name;
}

TEST(Language, NamesAreWordsWithHyphensAndUnitsEndThem) {
  const std::set<std::string> retired = {
      "--iterations", "--microbatch", "--microbatches",  "--hidden",        "--sequence",
      "--timeout",    "--grace",      "--limit",         "--after",         "--stop-after",
      "--counters",   "--output",     "--rail-gbytes",   "--domain-gbytes", "--domain-us",
      "--np",         "--nranks",     "--ranks-per-host"};
  int options = 0;
  for_each_option([&](const std::string& command, const json& o) {
    ++options;
    for (const std::string name : o["names"]) {
      SCOPED_TRACE(command + " " + name);
      EXPECT_FALSE(retired.contains(name));
      if (!kPerftest.contains(name))
        EXPECT_THAT(name, MatchesRegex("-[a-zA-Z]|--[a-z][a-z0-9]*(-[a-z0-9]+)*"));
    }
  });
  EXPECT_GT(options, 250);
}

TEST(Language, RanksAndIterationsHaveTheirLetters) {
  for_each_option([](const std::string& command, const json& o) {
    const std::set<std::string> names = o["names"];
    SCOPED_TRACE(command + " " + longest(o));
    EXPECT_EQ(names.contains("-N"), names.contains("--ranks"));
    if (names.contains("-n")) EXPECT_TRUE(names.contains("--iters") || names.contains("--steps"));
  });
}

// An option name takes a number in all commands, or text in all commands.
TEST(Language, AWordIsOfOneKind) {
  std::map<std::string, std::pair<std::string, std::string>> first;
  for_each_option([&](const std::string& command, const json& o) {
    const std::string takes = o["takes"];
    std::string kind = takes.substr(0, takes.find_first_of(": "));
    if (kind == "UINT" || kind == "INT" || kind == "FLOAT") kind = "a number";
    for (const std::string name : o["names"]) {
      if (!name.starts_with("--")) continue;
      // Flags of perf bw, explain and lab netlab; in other commands they take words or numbers.
      if (name == "--check" || name == "--pairs" || name == "--steps" || name == "--keep") continue;
      const auto [at, fresh] = first.try_emplace(name, kind, command);
      EXPECT_EQ(at->second.first, kind)
          << name << " of " << at->second.second << " and " << command;
    }
  });
}

TEST(Language, EveryOptionSaysWhatItIsInAGroup) {
  for_each_option([](const std::string& command, const json& o) {
    SCOPED_TRACE(command + " " + longest(o));
    const std::string about = o["about"];
    ASSERT_GE(about.size(), 4u);
    EXPECT_FALSE(o["group"].get<std::string>().empty());
    if (longest(o) == "--help" || longest(o) == "--version") return;
    EXPECT_FALSE(std::isupper(about[0]) && std::islower(about[1]) && !about.starts_with("ZeRO"))
        << about;
    EXPECT_FALSE(about.starts_with("of ")) << about;
  });
}

TEST(Language, JsonTakesAFileOrNone) {
  int reports = 0;
  for_each_option([&](const std::string& command, const json& o) {
    if (longest(o) != "--json") return;
    ++reports;
    SCOPED_TRACE(command);
    EXPECT_EQ(o["takes"], "[FILE]");
    EXPECT_TRUE(o["may_be_left_out"].get<bool>());
    EXPECT_THAT(o["about"].get<std::string>(), HasSubstr("(weft."));
  });
  EXPECT_GE(reports, 14);
}

TEST(Language, JsonGoesToStandardOutputOrAFile) {
  const std::string file = ::testing::TempDir() + "/language.json";
  for (const char* command :
       {"explain all_reduce", "sim all_reduce", "topo", "cost", "plan --model gpt2 --gpus 8"}) {
    SCOPED_TRACE(command);
    const std::string start = fmt::format("{} {} --json", WEFT_BINARY, command);
    const Output bare = run(start), dash = run(start + " -"), both = run(start + " " + file);
    EXPECT_TRUE(json::parse(bare.text, nullptr, false).contains("schema")) << bare.text;
    EXPECT_TRUE(json::parse(dash.text, nullptr, false).contains("schema")) << dash.text;
    EXPECT_TRUE(json::parse(read_file(file), nullptr, false).contains("schema"));
    EXPECT_TRUE(json::parse(both.text, nullptr, false).is_discarded()) << both.text;
  }
}

// A run uses every given option, or names the unused one.
TEST(Language, OptionsThatWouldBeIgnoredAreRefused) {
  const std::string replay = WEFT_SOURCE_DIR "/nowhere";
  for (const auto& [typed, option] : std::vector<std::pair<std::string, std::string>>{
           {"perf barrier --min-busbw 8", "--min-busbw"},
           {"perf sendrecv --expect 0.9", "--expect"},
           {"perf barrier -b 8", "--begin"},
           {"perf barrier -d double", "--type"},
           {"explain all_reduce --rank 1", "--rank"},
           {"explain all_reduce --root 1", "--root"},
           {"explain all_reduce --rails 2", "--rails"},
           {"explain barrier --bytes 8", "--bytes"},
           {"sim all_reduce --rail-us 3", "--rail-us"},
           {"sim all_reduce --spine-us 3", "--spine-us"},
           {"sim all_reduce --hosts 2 --seed 3", "--seed"},
           {"sim all_reduce --hosts 2 --uplink-gbps 3", "--uplink-gbps"},
           {"sim all_reduce --hosts 2 --unknown-leaves", "--unknown-leaves"},
           {"sim all_reduce --hosts 2 --equal-shares", "--equal-shares"},
           {"perf bw --seed 3", "--seed"},
           {"perf lat --pairs ring", "--pairs"},
           {"perf bw --op read -I 8 host", "--inline_size"},
           {"launch -N 2 -- weft perf bw -p 5", "--port"},
           {"launch -N 2 -- weft perf bw --seed 5", "--seed"},
           {"validate --simulate -N 4", "--ranks"},
           {"validate --list --html x", "--html"},
           {"replay " + replay + " --wire tcp", "--wire"},
           {"replay " + replay + " --sim --busy", "--busy"},
           {"lab softroce --once --ppn 2 -- true", "--ppn"}}) {
    const Output o = run(WEFT_BINARY " " + typed);
    EXPECT_EQ(o.exit_code, 4) << typed << o.text;
    EXPECT_THAT(o.text, HasSubstr(option + " would be ignored: ")) << typed;
  }
}

// `explain` predicts and `sim` simulates on the same default fabric.
TEST(Language, ExplainAndSimHaveOneFabric) {
  std::map<std::string, std::string> defaults;
  for_each_option([&](const std::string& command, const json& o) {
    if (o["group"] != "The machine") return;
    const auto [at, fresh] = defaults.try_emplace(longest(o), o["about"].get<std::string>());
    EXPECT_EQ(at->second, o["about"]) << command;
  });
  EXPECT_GE(defaults.size(), 5u);
  const std::string job = " all_reduce -N 8 --hosts 4 --json";
  const json explained = json::parse(run(WEFT_BINARY " explain" + job + " --profile off").text);
  const json played = json::parse(run(WEFT_BINARY " sim" + job).text);
  EXPECT_EQ(explained["chosen"]["algorithm"], played["rows"][0]["algorithm"]);
  EXPECT_NEAR(
      explained["chosen"]["time_us"].get<double>() / played["rows"][0]["time_us"].get<double>(), 1,
      0.1);
  EXPECT_DOUBLE_EQ(explained["lower_bound_us"].get<double>(),
                   played["lower_bound_us"].get<double>());
}

// A server announces once that it waits, also to a file.
TEST(Language, AServerSaysThatItWaits) {
  const Output server = run("timeout 2 " WEFT_BINARY " perf bw --op tcp -p 18733");
  EXPECT_THAT(server.text, HasSubstr("# waiting for the client, on TCP port 18733\n"));
  const Output client = run(WEFT_BINARY " perf bw --op tcp -p 18734 --timeout-ms 300 127.0.0.1");
  EXPECT_THAT(client.text, HasSubstr("# no server listens at 127.0.0.1 port 18734 yet"));
  EXPECT_EQ(client.text.find("yet"), client.text.rfind("yet")) << client.text;
}

TEST(Language, HelpHasAnExampleAndFits) {
  for (const json& c : commands()) {
    const std::string command = c["command"];
    if (command == "weft" || (c["has_commands"].get<bool>() && c["options"].size() < 2)) continue;
    SCOPED_TRACE(command);
    const Output help = run(WEFT_BINARY + command.substr(4) + " --help");
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.text, HasSubstr("Example"));
    std::istringstream lines(help.text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Language, TypingMistakesAreAnswered) {
  for (const auto& [typed, answer] :
       std::map<std::string, std::string>{{"pref", "did you mean perf?"},
                                          {"perf all_redcue", "did you mean all_reduce?"},
                                          {"perf all_reduce --fcator 2", "did you mean --factor?"},
                                          {"perf all_reduce -d flaot", "did you mean float?"},
                                          {"perf all_reduce -o smu", "did you mean sum?"},
                                          {"perf all_reduce --algo rign", "did you mean ring?"},
                                          {"perf all_reduce --transport tpc", "did you mean tcp?"},
                                          {"train --schedule 1f1", "did you mean 1f1b?"}}) {
    const Output o = run(WEFT_BINARY " " + typed);
    EXPECT_EQ(o.exit_code, 4) << typed;
    EXPECT_THAT(o.text, HasSubstr(answer)) << typed;
  }
}

TEST(Language, LaunchKnowsWeft) {
  const Output o =
      run("PATH=/bin:/usr/bin " WEFT_BINARY " launch -N 2 -- weft perf all_reduce -b 8 -e 8 -n 2");
  EXPECT_EQ(o.exit_code, 0) << o.text;
}

TEST(Language, AMisspeltVariableIsNamedOnce) {
  const Output o =
      run("WEFT_RAIL=lo " WEFT_BINARY " launch -N 2 -- " WEFT_BINARY " perf barrier -n 2");
  const std::string said = "did you mean WEFT_RAILS?";
  EXPECT_NE(o.text.find(said), o.text.npos) << o.text;
  EXPECT_EQ(o.text.find(said), o.text.rfind(said)) << o.text;
}

TEST(Language, BashCompletesCommandsAndOptions) {
  const auto complete = [](const std::string& words) {
    return run("bash -c 'source <(" WEFT_BINARY " completion bash); COMP_WORDS=(" + words +
               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _weft; echo \"${COMPREPLY[@]}\"'")
        .text;
  };
  EXPECT_EQ(complete("weft val"), "validate\n");
  EXPECT_EQ(complete("weft perf all_red"), "all_reduce\n");
  EXPECT_EQ(complete("weft lab netlab --gr"), "--grace-ms\n");
  EXPECT_EQ(complete("weft launch -N 2 -- weft pe"), "\n");
}

// docs/reference.md lists every option of every command, and nothing more.
TEST(Language, ThePageHasEveryOption) {
  std::string page;
  for (const json& c : commands()) {
    std::string options;
    for (const json& o : c["options"]) {
      if (longest(o) == "--help") continue;
      std::string names;
      for (const std::string name : o["names"]) names += (names.empty() ? "`" : "`, `") + name;
      if (names.empty()) names = "`" + o["position"].get<std::string>();
      options +=
          fmt::format("| {}` | {} |\n", names,
                      std::regex_replace(o["about"].get<std::string>(), std::regex("\\|"), "\\|"));
    }
    if (!options.empty())
      page += fmt::format("\n### {}\n\n| option | |\n|---|---|\n{}",
                          c["command"].get<std::string>(), options);
  }
  const std::string begin = "<!-- options: made by Language.ThePageHasEveryOption -->\n";
  const std::string end = "\n<!-- end of options -->";
  const std::string path = WEFT_SOURCE_DIR "/docs/reference.md";
  const std::string text = read_file(path);
  const auto from = text.find(begin), to = text.find(end);
  ASSERT_NE(from, text.npos);
  ASSERT_NE(to, text.npos);
  const std::string whole = text.substr(0, from + begin.size()) + page + text.substr(to);
  if (std::getenv("WEFT_WRITE_DOCS") != nullptr) std::ofstream(path) << whole;
  EXPECT_EQ(read_file(path), whole) << "run this test with WEFT_WRITE_DOCS=1";
}

}  // namespace
}  // namespace weft
