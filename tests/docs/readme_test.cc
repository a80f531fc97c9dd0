// Runs the pages: see pages.h. readme_lab_test.cc runs blocks that need network namespaces, and
// tests/lab those that need the Soft-RoCE guest, in its one boot.
// labels: multiproc
// ctest: whole alone
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/docs/pages.h"
#include "tests/docs/run_block.h"

namespace weft::testing {
namespace {

class Page : public ::testing::TestWithParam<Block> {};

TEST_P(Page, BlockIsTrue) {
  const Block& block = GetParam();
  if (block.has("file")) {
    // The files of your-own-algorithm.md are extracted when its program is built.
    if (block.page.starts_with("docs/tutorials/")) return;
    EXPECT_NE(read_file(kSource / block.mark("file")).find(block.text), std::string::npos)
        << block.where() << ": the block is not (a part of) " << block.mark("file");
    return;
  }
  run_block(block);
}

std::vector<Block> blocks_of_this_machine() {
  std::vector<Block> blocks = all_blocks();
  std::erase_if(blocks, [](const Block& block) {
    const std::string needs = block.mark("needs");
    return !(block.has("file") || block.runs()) || needs == "netlab" || needs == "softroce";
  });
  return blocks;
}
INSTANTIATE_TEST_SUITE_P(Docs, Page, ::testing::ValuesIn(blocks_of_this_machine()),
                         [](const auto& info) { return name_of(info.param); });

TEST(Docs, FewBlocksAreNotRunAndEachSaysWhy) {
  int left = 0;
  for (const Block& block : all_blocks()) {
    for (const auto& [mark, argument] : block.marks)
      EXPECT_TRUE(std::set<std::string>({"not run", "needs", "file", "part of", "printed by",
                                         "may differ", "ends with", "before", "after"})
                      .contains(mark))
          << block.where() << ": no such mark: " << mark;
    EXPECT_TRUE(!block.has("needs") || kCapabilities.contains(block.mark("needs")))
        << block.where() << ": needs '" << block.mark("needs") << "', which is no capability";
    if (!block.has("not run")) continue;
    ++left;
    fmt::print("not run: {}: {}\n", block.where(), block.mark("not run"));
  }
  EXPECT_LE(left, kNotRun);
}

TEST(Docs, PartsAreInTheBlockThatIsRun) {
  const std::vector<Block> all = all_blocks();
  for (const Block& part : all) {
    if (!part.has("part of")) continue;
    const auto whole = std::find_if(all.begin(), all.end(), [&](const Block& b) {
      return b.page == part.page && b.runs() && b.contains(part.mark("part of"));
    });
    ASSERT_NE(whole, all.end()) << part.where() << ": part of nothing";
    for (const std::string& line : lines_of(part.text))
      EXPECT_TRUE(whole->contains(line + "\n")) << part.where() << ": not in the whole: " << line;
  }
}

// Commands outside of `sh` and `console` blocks would not be run.
TEST(Docs, CommandsAreInBlocksThatAreRun) {
  const std::regex command(
      "(\\$ |(\\./|sudo )?weft (?!.*:$)[a-z]+ -|\\./weft |mpirun |cmake |ctest ).*");
  for (const std::string& page : pages()) {
    bool inside = false, other = false;
    int number = 0;
    for (const std::string& line : lines_of(read_file(kSource / page))) {
      ++number;
      if (line.starts_with("```")) {
        inside = !inside;
        other = inside && line != "```sh" && line != "```console";
      } else if (inside ? other : line.starts_with("    ")) {
        const std::string text = line.substr(std::min(line.find_first_not_of(' '), line.size()));
        EXPECT_FALSE(std::regex_match(text, command))
            << page << ":" << number << ": put it into a block of sh or console: " << line;
      }
    }
  }
}

// Commands in sentences and tables are not run, but their commands and options must exist.
TEST(Docs, CommandsInSentencesHaveWordsAndOptionsThatThereAre) {
  std::map<std::string, std::set<std::string>> options;
  const auto json = nlohmann::json::parse(run(std::string(WEFT_BINARY) + " completion json").text);
  for (const auto& command : json["commands"])
    for (const auto& option : command["options"])
      for (const std::string name : option["names"]) options[command["command"]].insert(name);
  ASSERT_GT(options.size(), 10U);
  const std::regex span("`(\\./)?(weft [^`]+)`");
  for (const std::string& page : pages()) {
    std::string text;
    bool inside = false;
    for (const std::string& line : lines_of(read_file(kSource / page))) {
      if (line.starts_with("```"))
        inside = !inside;
      else if (!inside)
        text += line + " ";
    }
    for (std::sregex_iterator at(text.begin(), text.end(), span), end; at != end; ++at) {
      std::istringstream words((*at)[2].str());
      std::string command, word;
      bool named = false;
      for (words >> command; words >> word && word != "--" && word != "...";) {
        if (!named && options.contains(command + " " + word)) {
          command += " " + word;
          continue;
        }
        // The script ./weft has two commands of its own; words in capitals are placeholders.
        if (command == "weft" && !word.starts_with("-")) {
          EXPECT_TRUE(word == "test" || word == "package" || word == "help" ||
                      std::isupper(word[0]))
              << page << ": no such command: " << at->str();
        }
        named = true;
        if (!word.starts_with("-") || command == "weft" || std::isdigit(word[1])) continue;
        EXPECT_TRUE(options[command].contains(word.substr(0, word.find('='))))
            << page << ": no such option: " << word << " of " << at->str();
      }
    }
  }
}

// Shown output matches printed output with other numbers and line breaks, and nothing else.
TEST(Docs, TheShapeOfWhatIsPrintedIsCompared) {
  const std::string printed =
      "verdict: OK - loss >= 0.5 %,\nrate 6.2 %\njob efd7e73a3bbbb95a: 4 ranks\n ### 7\n";
  EXPECT_EQ(not_printed("verdict: OK - loss >= 0.529 %, rate\n16.26 %\n", printed), "");
  EXPECT_EQ(not_printed("job 01d7e73a3bbbb95b: 12 ranks\n # 1e-5\n", printed), "");
  EXPECT_EQ(not_printed("verdict: ...\n...\n4 ranks\n", printed), "");
  EXPECT_EQ(not_printed("verdict: WARN", printed), "verdict: WARN");
  EXPECT_EQ(not_printed("4 ranks\n...\nverdict: OK", printed), "verdict: OK");
  EXPECT_EQ(not_printed("loss >= 0.5 %, job", printed), "loss >= # %, job");
}

TEST(Docs, ABlockThatIsNotTrueIsSeen) {
  Block block{"page.md",
              "console",
              "$ false; echo 3 things\n5 things\n$ sh -c 'exit 2'\n",
              1,
              {{"ends with", "2"}},
              ""};
  expect_true(block, {"3 things\n@@ 0\n@@ 2\n", 0});
  EXPECT_EQ(script_of(block),
            "exec 2>&1\n\nfalse; echo 3 things\necho \"@@ $?\"\nsh -c 'exit 2'\necho \"@@ $?\"\n");
  const auto judge = [&](const std::string& text) {
    ::testing::TestPartResultArray failures;
    {
      const ::testing::ScopedFakeTestPartResultReporter reporter(&failures);
      expect_true(block, {text, 0});
    }
    return failures.size();
  };
  EXPECT_EQ(judge("3 things\n@@ 0\n@@ 0\n"), 1) << "the exit code";
  EXPECT_EQ(judge("3 thinks\n@@ 0\n@@ 2\n"), 1) << "what is printed";
  EXPECT_EQ(judge("3 things\n@@ 0\n"), 1) << "no end";
}

TEST(Docs, TheReadmeHasItsCommands) {
  const std::string readme = read_file(kSource / "README.md");
  for (const char* command : {"./weft validate", "./weft test", "./weft perf", "./weft explain"})
    EXPECT_NE(readme.find(command), std::string::npos) << command;
}

// Every relative link of every page has a target.
TEST(Docs, LinksLeadToFiles) {
  namespace fs = std::filesystem;
  std::vector<fs::path> pages{kSource / "README.md", kSource / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  for (const fs::path& page : pages) {
    const std::string text = read_file(page);
    for (std::size_t at = 0; (at = text.find("](", at)) != text.npos;) {
      at += 2;
      std::string link = text.substr(at, text.find(')', at) - at);
      link = link.substr(0, link.find('#'));
      if (link.empty() || link.find("://") != link.npos) continue;
      EXPECT_TRUE(fs::exists(page.parent_path() / link)) << page << " links to " << link;
    }
  }
}

}  // namespace
}  // namespace weft::testing
