// `weft train`: flags that would be ignored or are contradictory, ranks with different flags, and
// files that cannot be written.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/jobs/launchers.h"
#include "support/jobs/ranks.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "train/checkpoint/lock.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSmall =
    "--batch 4 --width 16 --heads 2 --layers 2 --positions 16 --sample 0 ";

std::string train_small(const std::string& flags) {
  return fmt::format("{} train {}{}", WEFT_BINARY, kSmall, flags);
}

void expect_refused(const std::vector<std::pair<const char*, const char*>>& all,
                    const std::string& before) {
  for (const auto& [flags, why] : all) {
    const Output o = run(fmt::format("{} train {}{}", WEFT_BINARY, before, flags));
    EXPECT_NE(o.exit_code, 0) << flags << "\n" << o.text;
    EXPECT_THAT(o.text, HasSubstr(why)) << flags;
  }
}

TEST(TrainFlagsCommand, RefusesWhatItWouldIgnore) {
  expect_refused(
      {{"-N 1 --algo ring", "--algo ring with one rank: it has nobody"},
       {"-N 2 --tp 2 --sync ps", "--sync ps with --dp 1: no gradients travel"},
       {"-N 2 --pp 2 --bucket-bytes 4096", "--bucket-bytes 4096 with --dp 1"},
       {"-N 2 --tp 2 --no-overlap", "--no-overlap with --dp 1: no gradients travel"},
       {"-N 2 --deterministic --bucket-bytes 4096", "--bucket-bytes 4096 with --deterministic"},
       {"-N 2 --deterministic --zero 2 --no-overlap", "--no-overlap with --deterministic"},
       {"--eval-every 2", "--eval-every 2 with --steps 1: no step would be evaluated"},
       {"--peak-tflops 1", "--peak-tflops 1 with --backend cpu: the MFU is a GPU's"},
       {"--schedule gpipe", "--schedule gpipe with --pp 1: there is no pipeline"},
       {"--embed owner", "--embed owner with --tp 1"},
       {"--tp-style seed", "--tp-style seed with --tp 1: nothing is split"},
       {"--save-every 3", "--save-every 3 without --save: nothing is saved; say --save FOLDER"},
       {"--keep 3", "--keep 3 without --save"},
       {"--prompt hello", "--prompt hello with --sample 0: no text is written"},
       {"--temperature 0.5", "--temperature 0.5 with --sample 0"},
       {"-N 1 --sequence-parallel", "--sequence-parallel with --tp 1: there is nobody to split"},
       {"-N 2 --dp 2 --zero 2 --bucket-bytes 4096", "--bucket-bytes 4096 with --zero 2"},
       {"-N 2 --dp 2 --zero 3 --bucket-bytes 4096", "--bucket-bytes 4096 with --zero 3"},
       {"-N 2 --dp 2 --zero 1 --shard-group 1", "--shard-group 1 with --zero 1: groups of one"}},
      "--steps 1 --sample 0 ");
}

TEST(TrainFlagsCommand, PipelineExplainRefusesNegativeNumbers) {
  const Output o = run(WEFT_BINARY " pipeline explain --stages -1");
  EXPECT_EQ(o.exit_code, 4);
  EXPECT_THAT(o.text, HasSubstr("--stages"));
  EXPECT_EQ(run(WEFT_BINARY " pipeline explain --stages 2 --micro-batches -2").exit_code, 4);
}

// The same flags where they have an effect, and in a job that becomes too small for them.
TEST(TrainFlagsCommand, TakesWhatItDoesNotIgnore) {
  for (const char* flags :
       {"-N 2 --tp 2 --algo ring --steps 1", "-N 2 --sync ps --no-overlap --steps 1",
        "-N 2 --deterministic --zero 3 --no-overlap --steps 1", "-N 1 --steps 2 --eval-every 2"}) {
    const Output o = run(train_small(flags));
    EXPECT_EQ(o.exit_code, 0) << flags << "\n" << o.text;
  }
  const testing::TemporaryFolder folder;
  const Output o =
      run(train_small("-N 2 --dp 2 --zero 1 --no-overlap --steps 6 --save-every 1 "
                      "--elastic --kill 1:3 --save " +
                      folder / "save"));
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("# dp 1 x tp 1 x pp 1"));
}

TEST(TrainFlagsCommand, RefusesNumbersThatMakeNoSense) {
  expect_refused({{"--lr nan", "--lr: nan is not a finite number"},
                  {"--lr inf", "--lr: inf is not a finite number"},
                  {"--lr-per-256 nan", "--lr-per-256: nan"},
                  {"--loss-scale nan", "--loss-scale: nan"},
                  {"--loss-scale inf", "--loss-scale: inf"},
                  {"--sample 1 --temperature nan", "--temperature: nan"},
                  {"--warm-up -4", "--warm-up -4: it cannot be negative"},
                  {"--clip -1", "--clip -1: it cannot be negative"},
                  {"--clip nan", "--clip: nan"},
                  {"-N 1 --batch 4294967297", "4294967297 micro-batches are more than can be"},
                  {"-N 2 --dp 2 --micro-batch 9223372036854775808",
                   "--batch 8 is no multiple of --micro-batch 9223372036854775808"}},
                 "--steps 1 --sample 0 ");
  const Output o = run(train_small("-N 1 --steps 1 --warm-up 0 --clip 0 --loss-scale 0 --lr 1e-3"));
  EXPECT_EQ(o.exit_code, 0) << o.text;
}

// One rank has an additional flag.
TEST(TrainFlagsCommand, RanksThatWereStartedDifferentlyAreNamed) {
  const testing::TemporaryFolder folder;
  const auto expect_named = [&](const std::string& more, const std::string& what) {
    const std::string shell =
        fmt::format("sh -c 'if [ $RANK = 1 ]; then more=\"{}\"; fi; exec {} $more'", more,
                    train_small("--dp 2 --steps 2"));
    const Output o = run(testing::in_torchrun_environment(2, shell));
    EXPECT_EQ(o.exit_code, 4) << o.text;
    EXPECT_THAT(o.text, HasSubstr(what));
    EXPECT_THAT(o.text, HasSubstr("give every rank the same options and data"));
    EXPECT_THAT(o.text, Not(HasSubstr("deadline")));
  };
  expect_named("--lr 1e-2", "rank 1 has lr 0.01, rank 0 has 0.003");
  expect_named("--warm-up 3", "rank 1 has warm-up 3, rank 0 has 10");
  expect_named("--loss-scale 1024", "rank 1 has loss-scale 1024, rank 0 has 0");
  expect_named("--save " + folder / "save",
               "rank 1 has --save " + folder / "save" + ", rank 0 has nowhere");
  expect_named("--sample 3", "rank 1 has --sample 3, rank 0 has 0");
  expect_named("--trace " + folder / "t.json", "rank 1 has --trace somewhere, rank 0 has nowhere");
  expect_named("--type double", "rank 1 has --type double, rank 0 has float");
}

// A restart would resume from the checkpoints of the other run.
TEST(TrainFlagsCommand, AFolderOfAnotherRunIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string save = " -N 2 --save " + folder / "save";
  ASSERT_EQ(run(train_small("--steps 6 --save-every 6" + save)).exit_code, 0);
  const Output o =
      run(train_small("--steps 6 --save-every 2 --seed 9 --restart 1 --kill 1:5" + save));
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("there are checkpoints of another run; say --resume"));
  EXPECT_EQ(run(train_small("--steps 8 --resume" + save)).exit_code, 0);
}

// Each save removes older checkpoints: two jobs would remove each other's.
TEST(TrainFlagsCommand, AFolderThatAnotherJobSavesToIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string save = folder / "save";
  const auto train = [&](const char* flags) {
    return run(train_small(fmt::format("-N 2 --steps 2 --save {} {}", save, flags)));
  };
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    const train::FolderLock other(world.world(), save);
    for (const char* flags : {"", "--resume"}) {
      const Output o = train(flags);
      EXPECT_EQ(o.exit_code, 4) << o.text;
      EXPECT_THAT(o.text,
                  HasSubstr(fmt::format("another job saves there (process {} on host", getpid())));
    }
  });
  EXPECT_EQ(train("").exit_code, 0);
  EXPECT_EQ(train("--resume").exit_code, 0);
}

TEST(TrainFlagsCommand, AFolderThatAnotherUsersJobSavesToIsRefused) {
  const std::string nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups " WEFT_BINARY " ";
  if (run(nobody + "--help").exit_code != 0)
    GTEST_SKIP() << "missing capability: to be another user (root and setpriv)";
  const testing::TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    const train::FolderLock other(world.world(), folder.path());
    const Output o = run(nobody + "train -N 1 --steps 2 --save " + folder.path());
    EXPECT_EQ(o.exit_code, 4) << o.text;
    EXPECT_THAT(o.text,
                HasSubstr(fmt::format("another job saves there (process {} on host", getpid())));
  });
}

// As if the folder is not on a shared file system.
TEST(TrainFlagsCommand, ARankThatDoesNotSeeTheCheckpointIsNamed) {
  const testing::TemporaryFolder folder;
  for (const char* rank : {"0", "1"}) fs::create_directories(folder / rank);
  const std::string train = train_small("--dp 2 ");
  ASSERT_EQ(run(train + "-N 2 --steps 2 --save " + folder / "0/save").exit_code, 0);
  const Output o = run(testing::in_torchrun_environment(
      2, fmt::format("sh -c 'cd {}/$RANK; exec {} --steps 4 --resume --save save'", folder / "",
                     train)));
  EXPECT_NE(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("/commit: No such file or directory"));
  EXPECT_THAT(o.text, HasSubstr("(rank 1)"));
  EXPECT_THAT(o.text, Not(HasSubstr("deadline")));
}

// Every rank checks, not only the first and last stages, so no rank waits.
TEST(TrainFlagsCommand, ATextThatIsTooShortIsFoundBeforeTheFirstStep) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "one") << "x";
  const Output o = run(train_small("--layers 3 -N 3 --pp 3 --data " + folder / "one"));
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("one has 1 bytes, fewer than --positions 16 and one more"));
  EXPECT_THAT(o.text, Not(HasSubstr("deadline")));
  EXPECT_THAT(o.text, Not(HasSubstr("M parameters")));
}

TEST(TrainFlagsCommand, ALogThatIsNotWrittenIsAnError) {
  const Output o = run(train_small("-N 1 --steps 2 --log /dev/full"));
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("--log /dev/full: cannot be written: No space left on device"));
}

TEST(TrainFlagsCommand, AnEmptyPromptIsANewLine) {
  const auto sample = [](const std::string& prompt) {
    const Output o = run(train_small("-N 1 --steps 1 --sample 9 " + prompt));
    EXPECT_EQ(o.exit_code, 0) << o.text;
    const auto at = o.text.find(" tokens/s:\n");
    EXPECT_NE(at, std::string::npos) << o.text;
    return o.text.substr(at == std::string::npos ? 0 : at);
  };
  EXPECT_EQ(sample("--prompt \"\""), sample(""));
}

class TrainResumeCommand : public ::testing::Test {
 protected:
  // The lines of the log, by step.
  std::map<int, nlohmann::json> steps(const std::string& flags) {
    const std::string log = folder_ / fmt::format("log{}", ++logs_);
    output_ = run(train_small(flags + " --log " + log));
    EXPECT_EQ(output_.exit_code, 0) << output_.text;
    std::map<int, nlohmann::json> all;
    std::ifstream in(log);
    for (std::string line; std::getline(in, line);) {
      auto step = nlohmann::json::parse(line);
      const int number = step["step"];
      all[number] = std::move(step);
    }
    return all;
  }
  const testing::TemporaryFolder folder_;
  const std::string save_ = folder_ / "save";
  int logs_ = 0;
  Output output_;
};

// A scale that overflows floats: steps are skipped until it is small enough. The resumed run starts
// with the reduced scale.
TEST_F(TrainResumeCommand, GoesOnWithTheScaleOfTheLoss) {
  const std::string flags =
      "-N 2 --dp 2 --steps 24 --loss-scale 1e42 --deterministic --lr 1e-2 --warm-up 0 "
      "--save-every 12 --save " +
      save_;
  const auto whole = steps(flags);
  fs::remove_all(save_ + "/step-00000024");
  const auto rest = steps(flags + " --resume");
  ASSERT_EQ(whole.size(), 24u);
  ASSERT_EQ(rest.size(), 12u) << output_.text;
  EXPECT_EQ(whole.at(1)["loss_scale"], 1e42);
  EXPECT_EQ(whole.at(2)["loss_scale"], 1e42 / 2);
  EXPECT_TRUE(whole.at(1)["skipped"]);
  EXPECT_FALSE(whole.at(24)["skipped"]);
  for (const auto& [step, line] : rest)
    for (const char* what : {"loss", "gradient_norm", "skipped", "loss_scale", "rate"})
      EXPECT_EQ(line[what], whole.at(step)[what]) << what << " of step " << step;
}

// Good checkpoints are kept: weights with which no step succeeds are not saved.
TEST_F(TrainResumeCommand, ARunThatLeavesTheNumbersEndsAndSavesNothing) {
  const std::string flags = "-N 2 --dp 2 --warm-up 0 --save-every 2 --save " + save_;
  steps(flags + " --steps 4");
  for (const char* how :
       {"--steps 60 --restart 1", "--steps 10", "--steps 60 --loss-scale 65536"}) {
    const Output o = run(train_small(flags + " --resume --lr 1e30 --clip 0 " + how));
    EXPECT_EQ(o.exit_code, 4) << o.text;
    EXPECT_THAT(o.text, HasSubstr("all steps from 6 on were skipped")) << how;
    EXPECT_THAT(o.text, HasSubstr("take a smaller --lr or --clip, with --resume")) << how;
    EXPECT_THAT(o.text, Not(HasSubstr("again"))) << how;
    EXPECT_FALSE(fs::exists(save_ + "/step-00000006")) << how;
  }
  steps(flags + " --resume --steps 6");
  EXPECT_TRUE(fs::exists(save_ + "/step-00000006"));
}

TEST_F(TrainResumeCommand, RefusesAnotherOptimizersState) {
  for (const auto& [first, second] : {std::pair("adamw", "sgd"), std::pair("sgd", "adamw")}) {
    fs::remove_all(save_);
    const std::string flags = "-N 2 --dp 2 --save " + save_;
    steps(fmt::format("{} --steps 2 --optimizer {}", flags, first));
    const Output o =
        run(train_small(fmt::format("{} --steps 4 --resume --optimizer {}", flags, second)));
    EXPECT_EQ(o.exit_code, 4) << o.text;
    EXPECT_THAT(o.text,
                HasSubstr(fmt::format("--optimizer {}: {}/step-00000002 was written with "
                                      "--optimizer {}, whose state means something else; say "
                                      "--optimizer {}",
                                      second, save_, first, first)));
  }
}

// Layouts may differ; differences that change the loss curve are reported.
TEST_F(TrainResumeCommand, WarnsOfAnotherSeedBatchRateAndText) {
  steps("-N 2 --dp 2 --steps 2 --save " + save_);
  const auto resumed = [&](const std::string& flags) {
    fs::remove_all(folder_ / "copy");
    fs::copy(save_, folder_ / "copy", fs::copy_options::recursive);
    steps(flags + " --steps 4 --resume --save " + folder_ / "copy");
    return output_.text;
  };
  const std::string same = resumed("-N 2 --tp 2 --recompute");
  EXPECT_THAT(same, HasSubstr("goes on after step 2"));
  EXPECT_THAT(same, Not(HasSubstr("warning")));
  std::ofstream(folder_ / "text") << std::string(100, 'x');
  const std::string other =
      resumed("-N 2 --dp 2 --seed 2 --batch 8 --lr 1e-4 --data " + folder_ / "text");
  const std::string from = folder_ / "copy/step-00000002";
  EXPECT_THAT(other, HasSubstr("warning: --seed is 2, but " + from + " was written with 1: the"));
  EXPECT_THAT(other, HasSubstr("warning: --batch is 8, but " + from + " was written with 4: the"));
  EXPECT_THAT(other, HasSubstr("warning: --lr is 0.0001, but " + from + " was written with 0.003"));
  EXPECT_THAT(other, HasSubstr("warning: --data is " + folder_ / "text ("));
}

}  // namespace
}  // namespace weft
