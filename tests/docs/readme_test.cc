// The README, the tutorials and the pages on training, run: every `sh` block is executed, every
// block that says it is a file is compared with that file.
//
// A comment in the line above a block says what is special about it:
//   <!-- not run: reason -->   left alone
//   <!-- needs: netlab -->     skipped where this machine has none (netlab, softroce, mpirun, gpu)
//   <!-- file: PATH -->        the block is that file of the source tree, or a part of it
//
// labels: multiproc lab softroce
// ctest: whole alone
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "support/process/read_file.h"
#include "support/process/shell.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = WEFT_SOURCE_DIR;

struct Block {
  std::string page, language, mark, argument, text;
  int line = 0;
};
void PrintTo(const Block& block, std::ostream* out) { *out << block.page << ":" << block.line; }

std::vector<Block> blocks_of(const std::string& page) {
  std::istringstream in(read_file(kSource / page));
  std::vector<Block> blocks;
  std::string mark, argument, line;
  bool inside = false;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.push_back({page, line.substr(3), mark, argument, "", number});
      mark = argument = "";
    } else if (inside) {
      blocks.back().text += line + "\n";
    } else if (const auto colon = line.find(':');
               line.starts_with("<!-- ") && line.ends_with(" -->") && colon != line.npos) {
      mark = line.substr(5, colon - 5);
      argument = line.substr(colon + 2, line.size() - colon - 6);
    } else {
      mark = argument = "";
    }
  }
  EXPECT_FALSE(inside) << page << ": a block does not end";
  return blocks;
}

std::vector<Block> all_blocks() {
  std::vector<std::string> pages{"README.md", "docs/lab.md", "docs/training.md"};
  for (const char* folder : {"docs/tutorials", "docs/training"})
    for (const auto& entry : fs::directory_iterator(kSource / folder))
      if (entry.path().extension() == ".md")
        pages.push_back(std::string(folder) + "/" + entry.path().filename().string());
  std::sort(pages.begin(), pages.end());
  std::vector<Block> all;
  for (const std::string& page : pages)
    for (Block& block : blocks_of(page)) all.push_back(std::move(block));
  return all;
}

// What the block needs and this machine lacks; empty where it can run.
std::string missing(const Block& block) {
  if (block.mark != "needs") return "";
  if (block.argument == "netlab") {
    const Output check = run((kSource / "tests/lab/netlab").string() + " check");
    return check.exit_code == 0 ? "" : "network namespaces (root): " + check.text;
  }
  if (block.argument == "softroce") {
    const Output check = run((kSource / "tests/lab/softroce").string() + " check");
    return check.exit_code == 0 ? "" : "the Soft-RoCE guest: " + check.text;
  }
  if (block.argument == "mpirun") {
#if !WEFT_HAVE_PMIX
    return "PMIx, which this build was configured without";
#endif
    const Output version = run("mpirun --version");
    return version.text.find("Open MPI") != std::string::npos ? "" : "mpirun of Open MPI";
  }
  if (block.argument == "gpu") {
#ifndef WEFT_HAVE_CUDA
    return "a GPU, and a build with CUDA";
#endif
    return run("nvidia-smi -L").exit_code == 0 ? "" : "a GPU";
  }
  ADD_FAILURE() << block.page << ":" << block.line << ": needs '" << block.argument
                << "', which is not one of netlab, softroce, mpirun, gpu";
  return "";
}

// A folder in which ./weft is the binary under test, beside the one with a device made of host
// memory.
class Folder {
 public:
  explicit Folder(const char* binary) {
    std::string name = (fs::temp_directory_path() / "weft_docs_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
    fs::create_symlink(binary, path_ / "weft");
    fs::create_symlink(WEFT_WITH_FAKES, path_ / "weft_with_fakes");
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

class Page : public ::testing::TestWithParam<Block> {};

TEST_P(Page, BlockIsTrue) {
  const Block& block = GetParam();
  SCOPED_TRACE(block.page + ":" + std::to_string(block.line));
  if (block.mark == "file" && fs::exists(kSource / block.argument)) {
    EXPECT_NE(read_file(kSource / block.argument).find(block.text), std::string::npos)
        << "the block is not (a part of) " << block.argument;
    return;
  }
  if (block.language != "sh" || block.mark == "not run") return;
  if (const std::string what = missing(block); !what.empty())
    GTEST_SKIP() << "missing capability: " << what;
  // The tutorial's commands run a weft that has the tutorial's algorithm.
  const bool tutorial = block.page.starts_with("docs/tutorials/");
  const Folder folder(tutorial ? WEFT_TUTORIAL_BINARY : WEFT_BINARY);
  const std::string environment =
      "export PATH=" + folder.path() +
      ":$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 WEFT_PROFILE=" +
      folder.path() + "/profile.json";
  // libpmix leaks a few bytes when it starts: not for us to report, in a build with ASan.
  const std::string leaks =
      block.argument == "mpirun" ? "export ASAN_OPTIONS=detect_leaks=0\n" : "";
  const Output output =
      run("cd " + folder.path() + " && " + environment + " && set -e\n" + leaks + block.text);
  EXPECT_EQ(output.exit_code, 0) << block.text << output.text;
}

INSTANTIATE_TEST_SUITE_P(Docs, Page, ::testing::ValuesIn(all_blocks()), [](const auto& info) {
  std::string name = fs::path(info.param.page).stem().string();
  std::erase_if(name, [](char c) { return !isalnum(static_cast<unsigned char>(c)); });
  return name + "_line" + std::to_string(info.param.line);
});

TEST(Docs, TheReadmeHasItsCommands) {
  const std::string readme = read_file(kSource / "README.md");
  for (const char* command : {"./weft validate", "./weft test", "./weft perf", "./weft explain"})
    EXPECT_NE(readme.find(command), std::string::npos) << command;
}

// Every relative link of every page leads somewhere.
TEST(Docs, LinksLeadToFiles) {
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
}  // namespace weft
