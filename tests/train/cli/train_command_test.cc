// `weft train` on real processes: layouts, killed ranks and resumption.
// labels: multiproc
#include "support/train/train_command.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "support/jobs/launchers.h"
#include "support/jobs/setting.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::TrainCommand;

// The trace shows that samples of a micro-batch are cut while another micro-batch computes.
TEST_F(TrainCommand, TheTraceShowsWhenSamplesCame) {
  losses("--steps 3 --batch 32 --micro-batch 1 --width 64 --positions 64 --trace " +
         folder_ / "run.json");
  std::ifstream in(folder_ / "run.pipeline.rank0.json");
  const auto trace = nlohmann::json::parse(in);
  std::vector<nlohmann::json> samples, computed;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.value("cat", "") == "samples") samples.push_back(e);
    if (e.value("cat", "") == "pipeline") computed.push_back(e);
  }
  ASSERT_EQ(samples.size(), 32u);
  int beside = 0;  // samples cut while another micro-batch computes
  for (const auto& s : samples) {
    EXPECT_EQ(s.at("args").at("step"), 3);
    for (const auto& c : computed) {
      const double begin = c.at("ts"), length = c.at("dur"), came = s.at("ts"), took = s.at("dur");
      beside += c.at("args").at("microbatch") != s.at("args").at("microbatch") &&
                came < begin + length && begin < came + took;
    }
  }
  EXPECT_GT(beside, 0);
}

TEST_F(TrainCommand, OneAndEightRanksAndEmulatedHosts) {
  const auto one = losses("");
  ASSERT_EQ(one.size(), 12u);
  EXPECT_LT(one.at(12), one.at(1) - 0.3);
  expect_near(one, losses("-N 8 --dp 2 --tp 2 --pp 2"));
  expect_near(one, losses("-N 8 --tp 2 --pp 2 --hosts 2 --rails 2 --zero 1"));
}

// Losses on the evaluation text, by step, from the log.
TEST_F(TrainCommand, EvaluatesWhatItIsNotTrainedOn) {
  const std::string log = folder_ / "log";
  const auto test_losses = [&](const std::string& flags) {
    fs::remove(log);
    output_ = run(command("--steps 40 " + flags + " --log " + log));
    EXPECT_EQ(output_.exit_code, 0) << output_.text;
    std::map<int, double> all;
    std::ifstream in(log);
    for (std::string line; std::getline(in, line);) {
      const auto step = nlohmann::json::parse(line);
      if (!step.contains("test_loss")) continue;
      all[step["step"]] = step["test_loss"];
      EXPECT_NEAR(step["test_perplexity"], std::exp(all[step["step"]]), 1e-9);
    }
    return all;
  };
  const auto usual = test_losses("");
  ASSERT_EQ(usual.size(), 2u) << output_.text;
  EXPECT_NE(output_.text.find("# 40 steps: test loss"), std::string::npos) << output_.text;
  EXPECT_LT(usual.at(40), usual.at(20));
  const auto often = test_losses("--eval-every 10 -N 4 --dp 2 --pp 2 --zero 3");
  ASSERT_EQ(often.size(), 4u) << output_.text;
  EXPECT_NEAR(often.at(20) / usual.at(20), 1, 1e-10);
  const std::string other = folder_ / "other";
  std::ofstream(other) << std::string(300, 'z');
  EXPECT_GT(test_losses("--eval-data " + other).at(40), usual.at(40) + 1);
  EXPECT_TRUE(test_losses("--eval-every 0").empty());
  const std::tuple<const char*, const char*> refused[] = {
      {"--eval-data /nowhere", "--eval-data /nowhere: cannot be read"},
      {"--eval-data {} --eval-every 0", "nothing is evaluated"},
      {"--eval-data {} --positions 500", "has 300 bytes, fewer than --positions 500"}};
  for (const auto& [flags, why] : refused) {
    const Output output = run(command(fmt::format(fmt::runtime(flags), other)));
    EXPECT_EQ(output.exit_code, 4) << output.text;
    EXPECT_NE(output.text.find(why), std::string::npos) << output.text;
  }
}

// The table of the schedule equals the table of what four ranks executed.
TEST_F(TrainCommand, ATraceHasTheElevenSteps) {
  const std::string trace = folder_ / "run.json";
  losses("-N 4 --pp 4 --layers 4 --schedule dataflow --batch 4 --trace " + trace);
  const std::string explain =
      std::string(WEFT_BINARY) + " pipeline explain --schedule dataflow --stages 4";
  const Output planned = run(explain + " --micro-batches 4");
  const Output done = run(std::string(WEFT_BINARY) + " pipeline explain --of " + trace);
  EXPECT_EQ(done.exit_code, 0) << done.text;
  EXPECT_EQ(done.text, planned.text);
  EXPECT_NE(done.text.find("active %: 25/50/75/100/75/50/75/100/75/50/25"), std::string::npos);
  // A trace of another schedule is rejected.
  const Output other = run(explain + " --micro-batches 5 --of " + trace);
  EXPECT_EQ(other.exit_code, 4) << other.text;
  EXPECT_NE(other.text.find("--micro-batches 5: the run of --of " + trace + " had 4"),
            std::string::npos)
      << other.text;
  std::ofstream(folder_ / "run.pipeline.rank2.json") << R"({"traceEvents":[{"cat":1}]})";
  const Output damaged = run(explain + " --micro-batches 4 --of " + trace);
  EXPECT_EQ(damaged.exit_code, 4);
  EXPECT_NE(damaged.text.find("rank2.json: not a trace of a pipeline"), std::string::npos)
      << damaged.text;
}

// Stage numbers are not rank numbers if there are other axes.
TEST_F(TrainCommand, ATraceOfAMixtureIsReadAsOnePipeline) {
  const std::string trace = folder_ / "run.json";
  losses("-N 8 --tp 2 --dp 2 --pp 2 --schedule 1f1b --batch 8 --micro-batch 1 --trace " + trace);
  const std::string explain =
      std::string(WEFT_BINARY) + " pipeline explain --schedule 1f1b --micro-batches 4 --stages ";
  const Output planned = run(explain + "2");
  const Output done = run(explain + "2 --of " + trace);
  EXPECT_EQ(done.exit_code, 0) << done.text;
  EXPECT_EQ(done.text, planned.text);
  const Output other = run(explain + "4 --of " + trace);
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_NE(other.text.find("--stages 4: the run of --of " + trace + " had 2"), std::string::npos)
      << other.text;
  for (int rank = 0; rank < 8; ++rank) {
    std::ifstream file(folder_ / fmt::format("run.pipeline.rank{}.json", rank));
    const auto events = nlohmann::json::parse(file)["traceEvents"];
    const std::string stage = fmt::format("stage {}", rank / 4);
    EXPECT_EQ(events[1]["args"]["name"], stage);
    EXPECT_EQ(fmt::format("stage {}", events.back()["args"]["stage"].get<int>()), stage);
  }
}

TEST_F(TrainCommand, SamplesTextAtTheEnd) {
  const Output out = run(command("--sample 40 --prompt hello"));
  EXPECT_EQ(out.exit_code, 0);
  EXPECT_NE(out.text.find(" tokens/s:\nhello"), std::string::npos) << out.text;
}

// A checkpoint of four ranks, without training: the same test loss as in the run, and the same
// weights generate the same text.
TEST_F(TrainCommand, EvaluatesAndSamplesACheckpoint) {
  const std::string save = " --save " + folder_ / "save";
  const auto after = [](const std::string& text, const std::string& mark) {
    const auto at = text.find(mark);
    EXPECT_NE(at, std::string::npos) << text;
    if (at == std::string::npos) return text;
    const auto begin = at + mark.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  const Output trained = run(command("-N 4 --dp 2 --pp 2 --eval-every 12 --sample 20" + save));
  ASSERT_EQ(trained.exit_code, 0) << trained.text;
  const Output out = run(command("--steps 0 --sample 20" + save));
  EXPECT_EQ(out.exit_code, 0) << out.text;
  EXPECT_NE(out.text.find("# weights of step 12 of "), std::string::npos) << out.text;
  EXPECT_EQ(after(out.text, "test loss "), after(trained.text, "test loss "));
  const std::string sample = after(trained.text, " tokens/s:\n");
  EXPECT_EQ(after(out.text, " tokens/s:\n"), sample);
  const Output split = run(command("--steps 0 -N 4 --tp 2 --dp 2 --sample 20" + save));
  EXPECT_EQ(after(split.text, " tokens/s:\n"), sample) << split.text;
  for (const char* refused : {"--steps 0", "--steps 0 --save x --log y"})
    EXPECT_EQ(run(command(refused)).exit_code, 4) << refused;
}

// kill -9 of a rank: the job reports it and restarts from its checkpoint; the loss curve has the
// same bits as without the kill.
TEST_F(TrainCommand, GoesOnAfterARankWasKilledAtARandomStep) {
  const int rank = static_cast<int>(random_() % 4), step = 1 + static_cast<int>(random_() % 12);
  const std::string kill = fmt::format("--kill {}:{}", rank, step);
  SCOPED_TRACE(kill);
  const std::string layout = "-N 4 --dp 2 --pp 2 --deterministic ";
  const auto whole = losses(layout);
  const auto broken =
      losses(layout + kill + " --save-every 3 --restart 1 --save " + folder_ / "save");
  EXPECT_NE(output_.text.find(fmt::format("rank {} was killed by signal 9", rank)),
            std::string::npos)
      << output_.text;
  const std::string from = step > 3 ? fmt::format("goes on after step {}", (step - 1) / 3 * 3)
                                    : "no checkpoint there yet, from the start";
  EXPECT_NE(output_.text.find(from), std::string::npos) << output_.text;
  EXPECT_EQ(whole, broken);
}

// Returns the process of a rank of the job whose command line contains `marker`; 0: none.
pid_t process_of_rank(int rank, const std::string& marker) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const auto text = [&](const char* what) {
      std::ifstream in(entry.path() / what, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    if (text("cmdline").find(marker) == std::string::npos) continue;
    const std::string variable = fmt::format("WEFT_RANK={}", rank) + '\0';
    if (('\0' + text("environ")).find('\0' + variable) != std::string::npos) return std::stoi(name);
  }
  return 0;
}

// Kills from outside at any moment of a step: while it computes, waits, or writes a checkpoint.
TEST_F(TrainCommand, GoesOnAfterARankWasKilledFromOutside) {
  const int rank = static_cast<int>(random_() % 4), step = 1 + static_cast<int>(random_() % 5);
  const std::chrono::milliseconds later(random_() % 250);
  SCOPED_TRACE(fmt::format("rank {}, {} ms after step {}", rank, later.count(), step));
  const std::string layout = "-N 4 --dp 2 --pp 2 --deterministic ";
  const auto whole = losses(layout);
  const std::string log = folder_ / fmt::format("log{}", logs_ + 1);
  bool killed = false;
  std::thread killer([&] {
    const auto lines = [&] {
      std::ifstream in(log);
      return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (lines() < step && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(later);
    const pid_t pid = process_of_rank(rank, log);
    killed = pid > 0 && kill(pid, SIGKILL) == 0;
  });
  // Steps of 250 ms, so that the job is still running when it is killed.
  const auto broken = losses(layout + "--straggler-us 250000 --save-every 2 --restart 1 --save " +
                             folder_ / "save");
  killer.join();
  EXPECT_TRUE(killed);
  EXPECT_NE(output_.text.find(fmt::format("rank {} was killed by signal 9", rank)),
            std::string::npos)
      << output_.text;
  EXPECT_EQ(whole, broken);
}

// A launcher other than weft's ends the job when a rank dies.
TEST_F(TrainCommand, OthersLaunchersDoNotStartAgain) {
  const auto refuses = [&](const std::string& command, const char* why) {
    const Output out = run(command);
    EXPECT_EQ(out.exit_code, 4) << command << "\n" << out.text;
    EXPECT_NE(out.text.find(why), std::string::npos) << command << "\n" << out.text;
  };
  const std::string save = " --save " + folder_ / "save";
  refuses(testing::in_torchrun_environment(2, command("--restart 2" + save)),
          "--restart 2 under a launcher (torchrun)");
  refuses(std::string(WEFT_BINARY) + " launch -N 2 -- " + command("--elastic" + save),
          "--elastic under a launcher (weft)");
  if (testing::missing_for_mpirun().empty())
    refuses(testing::by_mpirun(2, command("--elastic" + save)),
            "--elastic under a launcher (pmix)");
}

// Busy seconds of every rank: the slow rank is visible, wherever other ranks wait. Uses the best
// step of each rank, as the system may delay others.
TEST_F(TrainCommand, TheLogSaysHowLongEachRankWasBusy) {
  for (const char* layout :
       {"-N 4 --dp 2 --pp 2", "-N 4 --tp 2 --zero 3", "-N 2 --deterministic"}) {
    const std::string log = folder_ / "busy";
    fs::remove(log);
    const Output out =
        run(command(fmt::format("{} --steps 6 --straggler-us 200000 --log {}", layout, log)));
    EXPECT_EQ(out.exit_code, 0) << out.text;
    std::ifstream in(log);
    std::vector<double> least;
    int steps = 0;
    for (std::string line; std::getline(in, line); ++steps) {
      const auto step = nlohmann::json::parse(line);
      const std::vector<double> each = step["busy_s"];
      if (least.empty()) least = each;
      for (std::size_t r = 0; r < each.size(); ++r) least[r] = std::min(least[r], each[r]);
      EXPECT_EQ(step["straggler"]["rank"],
                std::max_element(each.begin(), each.end()) - each.begin())
          << line;
    }
    EXPECT_EQ(steps, 6);
    ASSERT_GE(least.size(), 2u);
    EXPECT_EQ(std::max_element(least.begin(), least.end()), least.end() - 1) << layout;
  }
}

// The server's moments are saved, and the run resumes with an all-reduce.
TEST_F(TrainCommand, TrainsWithAParameterServer) {
  const std::string save = " --save-every 6 --save " + folder_ / "save";
  const auto whole = losses("");
  expect_near(whole, losses("-N 4 --dp 2 --pp 2 --sync ps" + save));
  fs::remove_all(folder_ / "save/step-00000012");
  const auto rest = losses("-N 2 --dp 2 --resume" + save);
  ASSERT_EQ(rest.size(), 6u) << output_.text;
  for (const auto& [step, loss] : rest) EXPECT_NEAR(loss / whole.at(step), 1, 1e-10) << step;
}

TEST_F(TrainCommand, TheRateGrowsWithTheBatch) {
  const std::string log = folder_ / "rate";
  const Output out = run(command("-N 1 --lr-per-256 0.1 --warm-up 1 --steps 1 --log " + log));
  EXPECT_EQ(out.exit_code, 0) << out.text;
  std::ifstream in(log);
  std::string line;
  std::getline(in, line);
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(line)["rate"], 0.1 * 8 / 256);
}

// A checkpoint of one layout resumes in others.
TEST_F(TrainCommand, ResumesInAnotherLayout) {
  const auto whole = losses("");
  const std::string save = " --save-every 6 --save " + folder_ / "save";
  run(command("-N 4 --dp 2 --tp 2 --zero 3 --kill 0:7" + save));
  for (const char* layout : {"-N 4 --pp 2 --tp 2", "-N 2 --dp 2 --zero 2", "-N 1"}) {
    fs::copy(folder_ / "save", folder_ / "copy", fs::copy_options::recursive);
    const auto rest =
        losses(std::string(layout) + " --resume --save-every 100 --save " + folder_ / "copy");
    ASSERT_EQ(rest.size(), 6u) << output_.text;
    for (const auto& [step, loss] : rest)
      EXPECT_NEAR(loss / whole.at(step), 1, 1e-10) << layout << " step " << step;
    fs::remove_all(folder_ / "copy");
  }
}

TEST_F(TrainCommand, RefusesWhatCannotBe) {
  const auto refuses = [&](const std::string& flags, const char* why) {
    const Output out = run(command(flags));
    EXPECT_EQ(out.exit_code, 4) << out.text;
    EXPECT_NE(out.text.find(why), std::string::npos) << out.text;
  };
  refuses("-N 2 --dp 2 --batch 7", "--batch 7 is no multiple");
  refuses("-N 3 --tp 3", "--heads 4 with --tp 3");
  refuses("-N 4 --dp 3", "but the job has 4 ranks");
  refuses("--restart 2", "--restart 2 needs checkpoints: pass --save FOLDER");
  refuses("--elastic", "--elastic needs checkpoints: pass --save FOLDER");
  refuses("--resume", "--resume needs checkpoints: pass --save FOLDER");
  refuses("-N 1 --algo nonsense", "--algo nonsense: there is none of that name; there are auto, ");
  refuses("-N 2 --dp 2 --shard-group 2", "--shard-group 2 with --zero 0: nothing is split");
  refuses("-N 2 --dp 2 --kill 9:3", "--kill 9:3: nobody would die; the job has ranks 0 to 1");
  refuses("-N 2 --dp 2 --kill 1:13", "--kill 1:13: nobody would die");
  refuses("-N 2 --sync gossip", "--sync gossip: not one of allreduce, ps, ps-async");
  refuses("-N 2 --dp 2 --sync ps --zero 1", "--sync ps with --zero 1");
  refuses("-N 2 --staleness 3", "--staleness 3 with --sync allreduce: only --sync ps-async");
  refuses("-N 2 --sync ps-async --save x", "--save x with --sync ps-async");
  refuses("-N 1 --lr 1e-3 --lr-per-256 0.1", "--lr");
  refuses("-N 2 --pp 2 --schedule interleaved --chunks 2", "--layers 2 with 4 stages");
  refuses("--layers 100000000000", "--layers 100000000000: not in the range 1 to 10000");
  refuses("--width 1000000000000 --heads 1", "--width 1000000000000: not in the range 1 to ");
  refuses("--data /nowhere", "--data /nowhere: cannot be read");
  // It can be opened, but read() fails.
  refuses("--data /proc/self/mem", "--data /proc/self/mem: cannot be read beyond byte 0");
}

}  // namespace
}  // namespace weft
