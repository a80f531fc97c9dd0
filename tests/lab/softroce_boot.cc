#include "tests/lab/softroce_boot.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/process/read_file.h"
#include "support/process/temporary_folder.h"
#include "tests/docs/pages.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// For a guest that hangs; softroce_check ends checks that hang, after a time scaled to the guest's
// speed.
constexpr int kChecksSeconds = 3000;

struct Boot {
  // A comma is special to the emulator.
  Boot() : out(folder / "softroce, out") {
    fs::create_directories(out + "/pages");
    for (const Block& block : all_blocks())
      if (block.runs() && block.mark("needs") == "softroce")
        std::ofstream(out + "/pages/" + name_of(block)) << script_of(block);
    const char* text = std::getenv("WEFT_FAILOVER_ROUNDS");
    const int rounds = text ? std::atoi(text) : 3;
    log = run(
        fmt::format("{0} lab softroce --once --hosts 4 --rails 2 --limit-s {1} --out '{2}' -- "
                    "{3}/tests/lab/softroce_checks {0} {4} {3} {5} {6}",
                    WEFT_BINARY, kChecksSeconds + 30 * rounds, out, WEFT_SOURCE_DIR,
                    fs::read_symlink("/proc/self/exe").parent_path().string(), rounds, getpid()));
    std::printf("%s", log.text.c_str());
  }

  TemporaryFolder folder;
  std::string out;
  Output log;
};

const Boot& boot() {
  static const Boot only;
  return only;
}

}  // namespace

const std::string& missing_softroce() {
  static const std::string why = [] {
    const Output check = run(WEFT_SOURCE_DIR "/tests/lab/softroce check");
    return check.exit_code == 0 ? std::string() : check.text;
  }();
  return why;
}

const Output& softroce_log() { return boot().log; }

std::string softroce_left(const std::string& file) { return read_file(boot().out + "/" + file); }

CheckResult Guest::result(const std::string& check) {
  const std::string code = left(check + ".code");
  if (code.empty()) {
    ADD_FAILURE() << "the guest did not come to " << check << ":\n" << softroce_log().text;
    return {};
  }
  return {left(check + ".txt"), std::stoi(code)};
}

nlohmann::json Guest::json(const std::string& check) {
  const std::string text = left(check + ".json");
  return text.empty() ? nlohmann::json() : nlohmann::json::parse(text);
}

std::string Guest::good(const std::string& check) {
  const auto [text, code] = result(check);
  EXPECT_EQ(code, 0) << check << ":\n" << text << left(check + "_faults.txt");
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("WRONG"))) << check;
  return text;
}

void Guest::expect_good_pair(const std::string& check) {
  good(check);
  EXPECT_EQ(result(check + "_server").code, 0) << check << left(check + "_server.txt");
}

}  // namespace weft::testing
