// `--json [FILE]` before `--` and before other options leaves the program after `--` intact.
#include "perf/cli/mark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "coll/jobs/report.h"

namespace weft {
namespace {

struct Parsed {
  std::string json;
  bool tag = false;
  int ranks = 0;
  std::vector<std::string> program;
};

// A command like `lab netlab`: a report, a flag, a number, and a program.
Parsed parse(const std::string& line) {
  Parsed p;
  CLI::App app;
  CLI::App* command = app.add_subcommand("lab");
  add_json_option(*command, p.json, "weft.lab/1");
  command->add_flag("--tag", p.tag);
  command->add_option("-N", p.ranks);
  command->add_option("program", p.program)
      ->required()
      ->expected(1, CLI::detail::expected_max_vector_size);
  std::istringstream in("weft lab " + line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  keep_mark(arguments);
  app.parse(static_cast<int>(arguments.size()), arguments.data());
  return p;
}

TEST(Mark, TheProgramStaysWhole) {
  const std::string program = " -- run --json --tag -N x -- y";
  const auto is_whole = ::testing::ElementsAre("run", "--json", "--tag", "-N", "x", "--", "y");
  for (const std::string json : {"", "--json", "--json -", "--json FILE", "--json=FILE"})
    for (const std::string other : {"", "--tag", "-N 2", "--tag -N 2"})
      for (const bool last : {false, true}) {
        const std::string line = last ? other + " " + json : json + " " + other;
        SCOPED_TRACE(line + program);
        Parsed p;
        ASSERT_NO_THROW(p = parse(line + program));
        EXPECT_THAT(p.program, is_whole);
        EXPECT_EQ(p.json, json.empty() ? "" : json.ends_with("FILE") ? "FILE" : "-");
        EXPECT_EQ(p.tag, other.starts_with("--tag"));
        EXPECT_EQ(p.ranks, other.ends_with("2") ? 2 : 0);
      }
}

}  // namespace
}  // namespace weft
