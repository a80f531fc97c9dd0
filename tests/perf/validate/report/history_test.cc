#include "perf/validate/report/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "perf/validate/report/text_lines.h"
#include "tests/perf/validate/report/random_report.h"
#include "tests/support/process/temporary_folder.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;

void store(const std::string& path, Report report, const std::string& started) {
  report.started = started;
  std::ofstream(path) << json_text(report);
}

TEST(ReportHistory, PutsRunsSideBySide) {
  testing::TemporaryFolder folder;
  store(folder / "b.json", healthy_report(), "2026-11-23T04:00:00Z");
  store(folder / "a.json", slow_port_report(), "2026-11-24T04:00:00Z");
  store(folder / "c.json", emulated_report(), "2026-11-25T04:00:00Z");
  std::ofstream(folder / "notes.json") << "{}";
  std::ofstream(folder / "notes.txt") << "not read";
  const std::string text = to_text(read_history(folder.path()), {});
  EXPECT_THAT(
      text,
      ::testing::StartsWith(
          R"(  1  2026-11-23 04:00  OK                   no fault found; would have seen loss >= 2e-6 per packet,
                                            rate cuts >= 5 %
  2  2026-11-24 04:00  CRITICAL             h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s
  3  2026-11-25 04:00  OK (emulated)        no fault found; would have seen loss >= 2e-6 per packet,
                                            rate cuts >= 5 %

Gb/s of ports, those that moved most first
  run                                   1        2        3
  h3 rail 1 sends                     392      187      392
)"));
  EXPECT_THAT(text, HasSubstr("notes.json is not a report of `weft validate`: the document lacks"));
}

TEST(ReportHistory, AFolderWithoutReportsIsAnError) {
  testing::TemporaryFolder folder;
  const auto error = [](const std::string& path) -> std::string {
    try {
      (void)read_history(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(folder.path()), folder.path() + " has no report of `weft validate --json`");
  EXPECT_EQ(error(folder / "none"),
            "cannot read the folder " + (folder / "none") + ": No such file or directory");
}

TEST(ReportHistory, LinesFit) {
  testing::TemporaryFolder folder;
  for (int i = 0; i < 20; ++i)
    std::ofstream(folder / (std::to_string(i) + ".json"))
        << json_text(RandomReport(static_cast<std::uint64_t>(i)).draw());
  const std::string text = to_text(read_history(folder.path()), {});
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(columns_of(line), 100U) << line;
}

}  // namespace
}  // namespace weft::fabric
