// The script for the first minutes on a GPU: its flow, on the device made of host memory, with stub
// test programs. One of their cases hangs, and is killed.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class FirstDay : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "tests");
    fs::create_directories(folder_ / "pages");
    fs::create_directories(folder_ / "bin");
    script("bin/nvidia-smi", "echo 'NVIDIA H100 of a test, 570.1, 81559 MiB'");
    script("tests/cuda_cuda_tests", "echo '[  PASSED  ] 4 tests.'");
    script("tests/train_cuda_tests",
           "case \"$*\" in *list_tests*) printf 'CudaTraining.\\n  Alone\\n  Hangs\\n  Last\\n';;\n"
           "*Hangs) echo begins; sleep 1000;; *Last) echo '[  SKIPPED ] 1'; echo 'missing "
           "capability: a fast GPU';; esac");
    script("bin/nvidia-cuda-mps-control",
           "if [ \"$1\" = -d ]; then echo \"starts in $CUDA_MPS_PIPE_DIRECTORY\"; else read word; "
           "echo \"$word in $CUDA_MPS_PIPE_DIRECTORY\"; fi >> " +
               (folder_ / "mps"));
    script("bin/cuda-gdb", "echo \"Thread 1 of $2: wait_value\"");
    std::ofstream(folder_ / "pages/README.md") << "# Benchmarks\n";
  }
  void script(const std::string& name, const std::string& body) {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << body << "\n";
    chmod((folder_ / name).c_str(), 0755);
  }
  Output first_day(const std::string& weft, int budget) {
    return run(
        fmt::format("PATH={0}/bin:$PATH {1}/tests/cuda/first_day --device fake --built {0} "
                    "--weft {2} --out {0}/out --pages {0}/pages --budget {3}",
                    folder_.path(), WEFT_SOURCE_DIR, weft, budget));
  }
  std::string page() {
    for (const auto& entry : fs::directory_iterator(folder_ / "pages"))
      if (entry.path().filename() != "README.md") return read_file(entry.path());
    return "";
  }
  const testing::TemporaryFolder folder_;
};

TEST_F(FirstDay, MeasuresTestsAndWritesReportAndPage) {
  const Output out = first_day(WEFT_WITH_FAKES, 240);
  EXPECT_EQ(out.exit_code, 1) << out.text;  // because a case was killed
  const std::string report = read_file(folder_ / "out/report.md");
  EXPECT_NE(report.find("16 of 18 commands passed"), std::string::npos) << report;
  EXPECT_NE(report.find("| training | `train_cuda_tests --gtest_filter=CudaTraining.Hangs` | CUT"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("\nbegins\n"), std::string::npos) << report;      // its earlier output
  EXPECT_NE(report.find(": wait_value\n"), std::string::npos) << report;  // and its stacks
  // The figures, also on the console.
  for (const std::string& text : {report, out.text}) {
    EXPECT_THAT(text, ContainsRegex("-N 8 [^|]*--json mps-ranks-8.json. \\| passed \\| bus "
                                    "[0-9.e-]+ GB/s at 16K"));
    EXPECT_THAT(text, HasSubstr("| `cuda_cuda_tests` | passed | 4 tests passed |"));
    EXPECT_THAT(text, ContainsRegex("perf sendrecv[^|]*\\| passed \\| bus [0-9.]+ GB/s at "));
  }
  // An MPS daemon for the ranks that share the GPU, and none for the others.
  EXPECT_THAT(
      read_file(folder_ / "mps"),
      MatchesRegex("starts in (/[^\n]*/weft-mps-[^\n]*)\nquit in /[^\n]*/weft-mps-[^\n]*\n"));
  EXPECT_NE(report.find("CudaTraining.Last` | SKIPPED: missing capability: a fast GPU"),
            std::string::npos)
      << report;
  const std::string text = page();
  EXPECT_NE(text.find("on NVIDIA H100 of a test, 570.1, 81559 MiB."), std::string::npos) << text;
  EXPECT_NE(text.find("tests/cuda/first_day --device fake"), std::string::npos) << text;
  for (const char* figure : {"attention_grad", "all_reduce: 8 ranks", "| 1 | ", "| 8 | "})
    EXPECT_NE(text.find(figure), std::string::npos) << text;
  EXPECT_EQ(text.find("not measured"), std::string::npos) << text;
  const std::string index = read_file(folder_ / "pages/README.md");
  EXPECT_NE(index.find("-gpu.md): NVIDIA H100 of a test"), std::string::npos) << index;
}

// weft hangs in every command: each command is killed and reported.
TEST_F(FirstDay, NothingHangs) {
  script("weft", "sleep 1000");
  const Output out = first_day(folder_ / "weft", 20);
  EXPECT_EQ(out.exit_code, 1) << out.text;
  const std::string report = read_file(folder_ / "out/report.md");
  EXPECT_NE(report.find("| kernels | `weft bench kernels --rows 8 --repeat 1` "
                        "| CUT after "),
            std::string::npos)
      << report;
  EXPECT_NE(page().find("| 1 | not measured | | |"), std::string::npos);
}

}  // namespace
}  // namespace weft
