// The commands of the pages: those that README.md and docs/ ask a reader to type, and the output
// that they show. docs/decisions and docs/benchmarks record past runs, and are not tested.
//
// `sh` is a script that ends with 0. `console` has commands after "$ ", each followed by its
// output. `text` is output of the last `sh` block above it. Shown output must be printed, in this
// order, with any numbers; "..." matches anything. Comments in the lines above a block modify it:
//   <!-- not run: reason -->            not run; at most kNotRun of these
//   <!-- needs: netlab -->              skipped if this machine has none (see kCapabilities)
//   <!-- file: PATH -->                 the block is that file of the source tree, or a part of it
//   <!-- part of: WORDS -->             each line is in the page's block with these words, which runs
//   <!-- printed by: WORDS -->          `text`: output of the page's command block with these words
//   <!-- may differ: ring flat -->      each of these words matches any other of them
//   <!-- ends with: 2 -->               the exit code of the last command; 0|4: one of these,
//                                       and the page shows the output of the first
//   <!-- before: COMMAND -->            runs before the block; $SOURCE is the source tree
//   <!-- after: COMMAND -->             removes what the block leaves behind
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <ostream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft::testing {

inline const std::filesystem::path kSource = WEFT_SOURCE_DIR;
inline constexpr int kNotRun = 20;
// Capabilities that blocks may need, and a command that succeeds if the machine has it.
inline const std::map<std::string, std::string> kCapabilities = {
    {"netlab", (kSource / "tests/lab/netlab").string() + " check"},
    {"softroce", (kSource / "tests/lab/softroce").string() + " check"},
    {"mpirun", "mpirun --version | grep 'Open MPI' && weft --version | grep 'PMIx: lib'"},
    {"openmpi", "mpicc.openmpi --version && test -e build/release/mpi/openmpi"},
    {"mpich", "mpicc.mpich --version && test -e build/release/mpi/mpich"},
    {"gpu", "nvidia-smi -L && ! weft --version | grep 'CUDA: none'"},
};

struct Block {
  std::string page, language, text;
  int line = 0;
  std::map<std::string, std::string> marks;
  std::string shown;  // of `sh`: the expected output in its `text` blocks

  bool commands() const { return language == "sh" || language == "console"; }
  bool has(const std::string& mark) const { return marks.contains(mark); }
  std::string mark(const std::string& name) const { return has(name) ? marks.at(name) : ""; }
  bool contains(const std::string& words) const { return text.find(words) != text.npos; }
  std::string where() const { return page + ":" + std::to_string(line); }
  bool runs() const { return commands() && !has("not run") && !has("part of"); }
};
inline void PrintTo(const Block& block, std::ostream* out) { *out << block.where(); }
inline std::string name_of(const Block& block) {
  std::string name = std::filesystem::path(block.page).stem().string();
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name + "_line" + std::to_string(block.line);
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The pages with commands, including all folders below docs/.
inline std::vector<std::string> pages() {
  std::vector<std::string> pages{"README.md"};
  for (const char* folder : {"docs", "docs/tutorials", "docs/training"})
    for (const auto& entry : std::filesystem::directory_iterator(kSource / folder))
      if (entry.path().extension() == ".md")
        pages.push_back(std::string(folder) + "/" + entry.path().filename().string());
  std::sort(pages.begin(), pages.end());
  return pages;
}

inline std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> blocks;
  std::map<std::string, std::string> marks;
  bool inside = false;
  int number = 0;
  for (const std::string& line : lines_of(read_file(kSource / page))) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.push_back({page, line.substr(3), "", number, marks, ""});
      marks.clear();
    } else if (inside) {
      blocks.back().text += line + "\n";
    } else if (const auto colon = line.find(": ");
               line.starts_with("<!-- ") && line.ends_with(" -->") && colon != line.npos) {
      marks[line.substr(5, colon - 5)] = line.substr(colon + 2, line.size() - colon - 6);
    } else {
      marks.clear();
    }
  }
  EXPECT_FALSE(inside) << page << ": a block does not end";
  Block* above = nullptr;
  for (Block& block : blocks) {
    if (block.commands()) above = &block;
    if (block.language != "text" || block.has("file")) continue;
    Block* by = above;
    for (Block& other : blocks)
      if (block.has("printed by") && other.runs() && other.contains(block.mark("printed by")))
        by = &other;
    if (by == nullptr) {
      ADD_FAILURE() << block.where() << ": no command prints this text";
    } else {
      by->shown += block.text + "...\n";
    }
  }
  return blocks;
}

inline std::vector<Block> all_blocks() {
  std::vector<Block> all;
  for (const std::string& page : pages())
    for (Block& block : blocks_of(page)) all.push_back(std::move(block));
  return all;
}

// Replaces numbers, graphics of '#', and `words` by one '#', and white space by one blank.
inline std::string shape_of(std::string text, const std::string& words) {
  if (!words.empty())
    text = std::regex_replace(
        text, std::regex("\\b(" + std::regex_replace(words, std::regex(" "), "|") + ")\\b"), "#");
  text = std::regex_replace(text, std::regex("\\b(?=[a-f]*[0-9])[0-9a-f]{8,}\\b"), "#");
  text = std::regex_replace(text, std::regex("[-+]?[0-9]+([.,][0-9]+)*(e[-+]?[0-9]+)?"), "#");
  text = std::regex_replace(text, std::regex("#+"), "#");
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

// Returns the first text that the page shows but the program did not print; empty: none.
inline std::string not_printed(const std::string& shown, const std::string& printed,
                               const std::string& words = "") {
  const std::string text = shape_of(printed, words), pattern = shape_of(shown, words);
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < pattern.size();) {
    const std::size_t end = std::min(pattern.find("...", begin), pattern.size());
    std::string part = pattern.substr(begin, end - begin);
    begin = end + 3;
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    const std::size_t found = text.find(part, at);
    if (found == text.npos) return part;
    at = found + part.size();
  }
  return "";
}

// The commands of a `console` block, each with the output shown below it.
struct Typed {
  std::string command, shown;
};
inline std::vector<Typed> typed_in(const Block& block) {
  if (block.language == "sh") return {{block.text, block.shown}};
  std::vector<Typed> typed;
  bool goes_on = false;
  for (const std::string& line : lines_of(block.text)) {
    if (line.starts_with("$ ")) {
      typed.push_back({line.substr(2) + "\n", ""});
    } else if (typed.empty()) {
      ADD_FAILURE() << block.where() << ": output before the first command: " << line;
      return {};
    } else {
      (goes_on ? typed.back().command : typed.back().shown) += line + "\n";
    }
    goes_on = line.ends_with("\\") && (goes_on || line.starts_with("$ "));
  }
  if (!typed.empty()) typed.back().shown += "...\n" + block.shown;
  return typed;
}

// The block as a bash script. After each command of a `console` block it prints a line with the
// exit code.
inline std::string script_of(const Block& block) {
  std::string script = "exec 2>&1\n";
  if (block.has("after")) script += "trap '" + block.mark("after") + "' EXIT\n";
  script += block.mark("before") + "\n";
  if (block.language == "sh") return script + "set -e\n" + block.text;
  for (const Typed& typed : typed_in(block)) script += typed.command + "echo \"@@ $?\"\n";
  return script;
}

// Compares the output and exit code of a script_of() script with the page.
inline void expect_true(const Block& block, const Output& output) {
  SCOPED_TRACE(block.where());
  const std::regex wanted(block.has("ends with") ? block.mark("ends with") : "0");
  const std::vector<Typed> typed = typed_in(block);
  std::string left = output.text;
  for (std::size_t i = 0; i < typed.size(); ++i) {
    std::string printed = left;
    int code = output.exit_code;
    if (block.language == "console") {
      std::smatch end;
      ASSERT_TRUE(std::regex_search(left, end, std::regex("@@ ([0-9]+)\n")))
          << "no end of: " << typed[i].command << output.text;
      printed = end.prefix();
      code = std::stoi(end[1]);
      left = end.suffix();
    }
    EXPECT_TRUE(
        std::regex_match(std::to_string(code), i + 1 == typed.size() ? wanted : std::regex("0")))
        << "exit code " << code << " of: " << typed[i].command << printed;
    const bool as_shown = code == std::atoi(block.mark("ends with").c_str());
    if (i + 1 < typed.size() || as_shown) {
      EXPECT_EQ(not_printed(typed[i].shown, printed, block.mark("may differ")), "")
          << "is shown, and is not printed by: " << typed[i].command << printed;
    }
  }
}

}  // namespace weft::testing
