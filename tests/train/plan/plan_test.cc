// The planner and the cost: golden numbers through the commands, and the formulas behind them.
// unsanitized: PlanCommand.Advises* PlanCommand.TenBillion*
#include "train/plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/process/shell.h"
#include "topo/base/status.h"

namespace weft::train {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Output weft(const std::string& arguments) {
  return run(std::string(WEFT_BINARY) + " " + arguments);
}

TEST(PlanCommand, Gpt3HasItsParameters) {
  const Output o = weft("plan --model gpt3 --gpus 1024 --batch 1536");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("attention 604.03 M + FFN 1,208.02 M per block, 173.96 B in 96"));
  EXPECT_THAT(o.text, HasSubstr("174,604,259,328 parameters"));
}

TEST(PlanCommand, TenBillionParametersTakeTwentyBytesEach) {
  const Output o = weft("plan --params 10e9 --gpus 64 --gpu-memory 80G --layers 32 --json");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const json state = json::parse(o.text)["state_bytes"];
  EXPECT_EQ(state["d8"]["zero0"], 200e9);
  EXPECT_EQ(state["d8"]["zero1"], 60e9);
  EXPECT_EQ(state["d8"]["zero2"], 42.5e9);
  EXPECT_EQ(state["d8"]["zero3"], 25e9);
  EXPECT_THAT(weft("plan --params 10e9 --gpus 64 --layers 32").text,
              HasSubstr("       8         200      60    42.5      25\n"));
}

TEST(PlanCommand, RanksLayoutsThatFit) {
  const Output o = weft("plan --params 10e9 --gpus 64 --layers 32 --rows 100 --json");
  const json plan = json::parse(o.text);
  ASSERT_GT(plan["layouts"].size(), 5u);
  double last = 0;
  for (const json& l : plan["layouts"]) {
    EXPECT_EQ(l["tp"].get<int>() * l["pp"].get<int>() * l["dp"].get<int>(), 64);
    EXPECT_EQ(l["microbatch"].get<int>() * l["microbatches"].get<int>() * l["dp"].get<int>(), 512);
    EXPECT_LE(l["bytes"]["total"].get<double>(), 80e9 * 0.92);
    EXPECT_GE(l["step_s"].get<double>(), last - 1e-5);
    last = l["step_s"];
  }
}

// The strategy for each model size: the fastest layout on 8 GPUs per host with 80 GB, and the
// advice. Everything is calculated and does not depend on the machine.
TEST(PlanCommand, AdvisesAStrategyForEachSize) {
  struct Golden {
    const char* arguments;
    int exit_code, tp, pp, dp, zero;
    const char* advice;
  };
  for (const Golden& g : std::initializer_list<Golden>{
           // A small model: replicas, nothing sharded.
           {"--model gpt2 --gpus 1", 0, 1, 1, 1, 0,
            "the model's state takes 2.489 GB, a GPU has 80 GB: one GPU is enough"},
           {"--model gpt2 --gpus 8", 0, 1, 1, 8, 0,
            "the model's state takes 2.489 GB, a GPU has 80 GB: data parallelism is enough"},
           // Too large for one GPU, but not with sharded optimizer state.
           {"--params 10e9 --layers 32 --gpus 64", 0, 1, 1, 64, 2,
            "the model's state takes 200 GB, a GPU has 80 GB: sharded data parallelism"},
           // Less memory: sharded weights. Slow rails: stages, which send less than replicas.
           {"--params 10e9 --layers 32 --gpus 64 --gpu-memory 24G", 0, 1, 1, 64, 3,
            "the model's state takes 200 GB, a GPU has 24 GB: sharded data parallelism"},
           {"--params 10e9 --layers 32 --gpus 64 --rail-gbps 16", 0, 1, 4, 16, 1,
            "data parallelism and a pipeline along the rails"},
           // 175 B: all three kinds, with tensor parallelism inside the host.
           {"--model gpt3 --gpus 128 --batch 1536", 0, 4, 16, 2, 2,
            "the model's state takes 3492 GB, a GPU has 80 GB: sharded data parallelism, tensor "
            "parallelism inside the host and a pipeline along the rails"},
           {"--model gpt3 --gpus 1024 --batch 1536", 0, 4, 16, 16, 1,
            "sharded data parallelism, tensor parallelism inside the host and a pipeline along the "
            "rails"},
           {"--model gpt3 --gpus 1024 --batch 1536 --rail-gbps 40", 0, 4, 16, 16, 1,
            "data parallelism, tensor parallelism inside the host and a pipeline along the rails"},
           // Too large: the closest layout, and the remedy.
           {"--model gpt3 --gpus 8 --batch 8", 1, 4, 1, 2, 3,
            "nothing fits 8 GPUs; take more GPUs, or offload the optimizer"},
           {"--params 1e12 --layers 128 --gpus 64", 1, 1, 32, 2, 3,
            "nothing fits 64 GPUs; take more GPUs, or offload the optimizer"}}) {
    const Output o = weft(std::string("plan --json ") + g.arguments);
    EXPECT_EQ(o.exit_code, g.exit_code) << g.arguments;
    const json plan = json::parse(o.text), best = plan["layouts"][0];
    EXPECT_EQ(std::vector<int>({best["tp"], best["pp"], best["dp"], best["zero"]}),
              (std::vector<int>{g.tp, g.pp, g.dp, g.zero}))
        << g.arguments;
    EXPECT_EQ(best["fits"], g.exit_code == 0) << g.arguments;
    EXPECT_THAT(plan["advice"].get<std::string>(), HasSubstr(g.advice)) << g.arguments;
  }
}

TEST(PlanCommand, SaysWhatIsWrong) {
  const Output none = weft("plan --model gpt3 --gpus 8 --batch 8");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.text, HasSubstr("warning   does not fit: the layout that needs least takes"));
  EXPECT_THAT(
      weft("plan --params 10e9 --layers 32 --gpus 64 --tp 1 --pp 1 --zero 0").text,
      HasSubstr("what is asked for does not fit; tp 1 x pp\n          1 x dp 64 with ZeRO 2 "
                "does"));
  EXPECT_THAT(weft("plan --model gpt9").text, HasSubstr("gpt2-xl, gpt3"));
  EXPECT_THAT(weft("plan").text, HasSubstr("either --model"));
  for (const char* value : {"--positions 0", "--layers -3", "--width 0", "--heads -1",
                            "--vocabulary -1", "--tp -1", "--micro-batch -2"}) {
    const Output o = weft(std::string("plan --params 10e9 --gpus 64 ") + value);
    EXPECT_EQ(o.exit_code, 4) << value << o.text;
    EXPECT_THAT(o.text, HasSubstr(std::string(value).substr(0, 4))) << o.text;
  }
  EXPECT_THAT(weft("plan --model gpt2 --positions 128").text,
              HasSubstr("--model gpt2 has its own"));
  EXPECT_THAT(weft("plan --params many").text, HasSubstr("--params many: expected a number"));
  EXPECT_THAT(weft("plan --model gpt2 --schedule 2f2b").text, HasSubstr("zero-bubble"));
  // Ranks would have 12 or 13 sequences.
  const Output batch = weft("plan --model gpt2 --gpus 8 --dp 8 --batch 100");
  EXPECT_EQ(batch.exit_code, 4);
  EXPECT_THAT(batch.text, HasSubstr("--batch a multiple of dp * microbatch (e.g. 104)"));
}

TEST(CostCommand, TwoMonthsOfFiftyThousandGpus) {
  const Output o = weft("cost --gpus 50000 --watts 350 --days 60 --price 0.10");
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.text, HasSubstr("17.5 MW"));
  EXPECT_THAT(o.text, HasSubstr("60 days = 1,440 hours"));
  EXPECT_THAT(o.text, HasSubstr("25,200 MWh"));
  EXPECT_THAT(o.text, HasSubstr("2,520,000 $ = 2.52 M$ at 0.10 $/kWh"));
  const json j = json::parse(weft("cost --json").text);
  EXPECT_DOUBLE_EQ(j["energy_mwh"], 25200);
  EXPECT_EQ(weft("cost --gpus 0").exit_code, 4);
}

TEST(CostCommand, LargeNumbersAreNotOthers) {
  EXPECT_EQ(weft("cost --watts inf").exit_code, 4);
  const Output o = weft("cost --days 1e30");
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.text, HasSubstr("time      1e+30 days = 2.4e+31 hours"));
}

// Products of these numbers overflow an int, or even 64 bits.
TEST(PlanCommand, LargeNumbersAreNotOthers) {
  const Output many = weft("plan --model gpt2 --gpus 65536 --batch 65536");
  EXPECT_EQ(many.exit_code, 0);
  EXPECT_THAT(many.text, HasSubstr("   2   1 32768    1 "));
  EXPECT_EQ(weft("plan --model gpt2 --gpus 8 --batch 1073741824").exit_code, 0);
  const Output dp = weft("plan --model gpt2 --gpus 8 --dp 65536 --micro-batch 65536");
  EXPECT_EQ(dp.exit_code, 4);
  EXPECT_THAT(dp.text, HasSubstr("(e.g. 4294967296)"));
  EXPECT_THAT(weft("plan --params 1e30").text, HasSubstr("--params 1e+30: at least"));
  for (const char* shape :
       {"--params 1e11 --width 2000000000", "--params 1e18 --layers 1 --width 900000000 --heads 1"})
    EXPECT_THAT(weft(std::string("plan --gpus 8 ") + shape).text,
                HasSubstr("more parameters than can be counted"))
        << shape;
  EXPECT_THAT(weft("plan --params 1e18 --width 1").text, HasSubstr("more layers than can be"));
  for (const char* flag : {"--rail-gbps nan", "--gpu-tflops nan", "--rail-us nan"})
    EXPECT_THAT(weft(std::string("plan --model gpt2 ") + flag).text,
                HasSubstr("is not a finite number"))
        << flag;
}

TEST(ModelFacts, ParametersAreExact) {
  const ModelShape gpt3 = known_model("gpt3");
  EXPECT_EQ(gpt3.attention_parameters(), 604028928);
  EXPECT_EQ(gpt3.ffn_parameters(), 1208020992);
  EXPECT_EQ(gpt3.blocks(), 173956792320);
  EXPECT_EQ(gpt3.parameters(), 174604259328);
  EXPECT_EQ(known_model("gpt2").parameters(), 124439808);
}

// The published sizes of the weights; DeepSeek-V3 without its multi-token prediction module.
TEST(ModelFacts, LargeModelsHaveTheirPublishedSizes) {
  EXPECT_EQ(known_model("llama3-8b").parameters(), 8030261248);
  EXPECT_EQ(known_model("llama3-70b").parameters(), 70553706496);
  EXPECT_EQ(known_model("llama3-405b").parameters(), 405853388800);
  const ModelShape mixtral = known_model("mixtral-8x7b"), deepseek = known_model("deepseek-v3");
  EXPECT_EQ(mixtral.parameters(), 46702792704);
  EXPECT_NEAR(static_cast<double>(mixtral.active_parameters()), 12.9e9, 0.05e9);
  EXPECT_EQ(deepseek.parameters(), 671026419200);
  EXPECT_NEAR(static_cast<double>(deepseek.active_parameters()), 37e9, 1e9);
  // Keys and values of a token, in 16 bits: GQA with 8 heads, and a latent vector of 576.
  EXPECT_EQ(2 * known_model("llama3-70b").cached() * 80, 327680);
  EXPECT_EQ(deepseek.cached(), 576);
}

TEST(Predict, ExpertsAndContextsAreTheFormulas) {
  const Cluster cluster;
  const ModelShape deepseek = known_model("deepseek-v3"), llama = known_model("llama3-70b");
  const auto of = [&](const ModelShape& model, int ep, int cp, int zero) {
    Layout l;
    l.tp = 2;
    l.dp = 64 / cp;
    l.microbatches = 3;
    l.ep = ep;
    l.cp = cp;
    l.zero = zero;
    return predict(model, cluster, l);
  };
  const Layout one = of(deepseek, 1, 1, 0), many = of(deepseek, 16, 1, 0);
  EXPECT_EQ(one.ep_bytes, 0);
  // 58 blocks: 8 experts for each of 4096 tokens, there and back, in both passes, 2 bytes each.
  EXPECT_NEAR(many.ep_bytes / (58 * 3 * 4.0 * 4096 * 8 * 7168 / 2 * 2 * 15 / 16), 1, 1e-9);
  const double experts = 58 * 256 * 3.0 * 7168 * 2048 / 2;
  EXPECT_NEAR(one.memory.weights - many.memory.weights, 2 * experts * 15 / 16, 1e3);
  // ZeRO shards optimizer state over all replicas, with or without expert parallelism.
  EXPECT_NEAR(of(deepseek, 16, 1, 1).memory.optimizer / of(deepseek, 1, 1, 1).memory.optimizer, 1,
              1e-6);
  const Layout whole = of(llama, 1, 1, 0), ring = of(llama, 1, 4, 0);
  EXPECT_EQ(whole.cp_bytes, 0);
  // Keys and values of 2048 positions to three ranks, and twice as much backward.
  EXPECT_NEAR(ring.cp_bytes / (80 * 3 * 3.0 * 2048 * 2048 / 2 * 2 * 3), 1, 1e-9);
  EXPECT_NEAR(ring.memory.activations / whole.memory.activations, 0.25, 1e-9);
  EXPECT_EQ(ring.memory.weights, whole.memory.weights);
  EXPECT_NEAR(ring.tp_bytes / whole.tp_bytes, 0.25, 1e-9);
}

TEST(PlanCommand, SaysWhatTheTrainerCannotRun) {
  const Output o = weft("plan --model deepseek-v3 --gpus 2048 --batch 4096 --ep 64 --rows 3");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("671,026,419,200 parameters"));
  EXPECT_THAT(o.text, HasSubstr("weft train has no such model"));
  EXPECT_THAT(o.text, HasSubstr("ep 64: "));
  EXPECT_THAT(weft("plan --model llama3-70b --gpus 256 --batch 512 --cp 4 --rows 3").text,
              HasSubstr("cp 4: "));
  EXPECT_THAT(weft("plan --model gpt3 --ep 2").text, HasSubstr("this model has no experts"));
  EXPECT_THAT(weft("plan --model llama3-8b --trace x").text, HasSubstr("leave one out"));
}

TEST(ModelFacts, AmountsHaveUnits) {
  EXPECT_EQ(parse_amount("", "80G"), 80e9);
  EXPECT_EQ(parse_amount("", "80GB"), 80e9);
  EXPECT_EQ(parse_amount("", "1GiB"), 1073741824);
  EXPECT_EQ(parse_amount("", "10e9"), 10e9);
  for (const char* bad : {"", "G", "-1", "0", "1X", "1GG", "nan", "1e999"})
    EXPECT_THROW(parse_amount("--x", bad), Error) << bad;
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
}

// ---- the cost of one layout

Layout layout(int tp, int pp, int dp, int m) {
  Layout l;
  l.tp = tp;
  l.pp = pp;
  l.dp = dp;
  l.microbatches = m;
  return l;
}

TEST(Predict, BytesAreTheFormulas) {
  const ModelShape m = known_model("gpt3");
  Cluster c;
  const double bsh = 2048.0 * 12288;
  const Layout l = predict(m, c, layout(8, 4, 2, 16));
  // Of the first rank, which sends the most: 8(t-1)/t bsh per block, 2(t-1)/t bsh for the
  // embedding; activations to the next stage, and the tied table's gradient; 2(n-1)/n Psi of
  // gradients in fp32.
  EXPECT_DOUBLE_EQ(l.tp_bytes, 16 * (24 * 8.0 + 2) * 7 / 8 * bsh * 2);
  EXPECT_DOUBLE_EQ(l.pp_bytes, 16 * bsh * 2 + 50257.0 * 12288 / 8 * 4);
  EXPECT_DOUBLE_EQ(l.dp_bytes, 2.0 * 1 / 2 * 4 * l.parameters);
  EXPECT_DOUBLE_EQ(l.dp_rail_bytes, l.dp_bytes);  // tp fills the host
  Layout z = layout(1, 1, 8, 3);
  z.zero = 3;
  z = predict(known_model("gpt2"), c, z);
  // Weights before both passes, in bf16, except once for the final norm; gradients in fp32.
  EXPECT_NEAR(z.dp_bytes, 3 * 7 / 8.0 * (2 * 2 * 124439808.0 - 2 * 2 * 768 + 4 * 124439808.0),
              1e-3);
  EXPECT_EQ(z.dp_rail_bytes, 0);  // all in one host
  // GPT-2 on 2, 4, 8 ranks, gradients of bf16 summed in fp32.
  for (const auto& [n, bytes] : {std::pair{2, 497759232.0}, {4, 746638848.0}, {8, 871078656.0}}) {
    Layout half = layout(1, 1, n, 1);
    half.precision = precision_of("bf16");
    EXPECT_DOUBLE_EQ(predict(known_model("gpt2"), c, half).dp_bytes, bytes);
  }
}

TEST(Predict, BubbleIsTheSimulatorsForManyMicrobatches) {
  ModelShape m = known_model("gpt2");
  m.vocabulary = 1;  // a large vocabulary would make the last stage slower
  Cluster c;
  c.machine.rail = c.machine.host = {0, 1e10};  // messages take no time
  c.machine.core_us = 0;
  for (const int batches : {4, 16, 64, 1024}) {
    const Layout l = predict(m, c, layout(1, 4, 1, batches));
    EXPECT_NEAR(l.bubble, 3.0 / (batches + 3), 1e-4);
  }
}

// Messages in sequence: an all-reduce among 8 ranks needs 2 log2(8), a gather among 8 ranks in the
// host and 64 hosts log2(8) and log2(64).
TEST(Predict, LatencyCountsMessagesInSequence) {
  const ModelShape m = known_model("gpt3");  // 96 layers
  Cluster c;
  c.machine.host.us = 2;
  c.machine.rail.us = 6;
  c.machine.core_us = 0.5;  // at each end: 3 and 7 us in total
  const Layout t = predict(m, c, layout(8, 4, 2, 16));
  EXPECT_NEAR(t.tp_latency_s, 16 * 24 * 4 * (2 * 3) * 3e-6, 1e-12);
  Layout z = layout(1, 1, 512, 3);
  z.zero = 3;
  z = predict(m, c, z);
  EXPECT_NEAR(z.dp_latency_s, 3 * 3 * 96 * (3 * 3e-6 + 6 * 7e-6), 1e-12);
  Cluster fast = c;
  fast.machine.host.us = fast.machine.rail.us = fast.machine.core_us = 0;
  EXPECT_EQ(predict(m, fast, z).dp_latency_s, 0);
  EXPECT_NEAR(z.dp_s - predict(m, fast, z).dp_s, z.dp_latency_s, 1e-12);
  const Layout p = layout(1, 4, 1, 8);  // 8 + 3 micro-batches pass, 3 boundaries and back
  EXPECT_GT(predict(m, c, p).step_s, predict(m, fast, p).step_s + 2 * 3 * 2.9e-6);
}

TEST(Predict, MemoryFollowsZeroTensorAndPipeline) {
  const ModelShape m = known_model("gpt2-xl");
  const Cluster c;
  const double n = static_cast<double>(m.parameters());
  const double state[] = {20, 8 + 12 / 8.0, 2 + 16 / 8.0, 18 / 8.0};  // per parameter
  for (int zero = 0; zero <= 3; ++zero) {
    Layout l = layout(1, 1, 8, 1);
    l.zero = zero;
    const RankMemory memory = predict(m, c, l).memory;
    EXPECT_NEAR(memory.weights + memory.gradients + memory.optimizer, n * state[zero], 1);
  }
  // Per block, in bf16: x, two norms and the middle, q k v, attention's result, two results of the
  // feed-forward network; in fp32 a number per row and head, and four per row.
  const double rows = 1024, h = 1600;
  const double block = 2 * 16 * rows * h + 4 * rows * 25 + 4 * 4 * rows;
  // 1f1b holds p micro-batches on the first rank, which has 13 of 48 blocks, as the head on the
  // last rank costs as much as two.
  Layout l = layout(1, 4, 1, 64);
  EXPECT_EQ(predict(m, c, l).blocks, 13);
  const double f1b1 = predict(m, c, l).memory.activations;
  EXPECT_DOUBLE_EQ(f1b1, 4 * 13 * block);
  l.recompute = true;
  EXPECT_LT(predict(m, c, l).memory.activations, f1b1 / 8);
  l.recompute = false;
  l.schedule = "gpipe";
  EXPECT_GE(predict(m, c, l).memory.activations, 64 * 10 * block);
}

// Models of 10 B to 175 B parameters, trained by Narayanan et al. (arXiv 2104.04473, table 1) on
// A100 GPUs with 80 GB and activation recomputation: parameters, and measured rates.
TEST(Predict, PublishedModelsBetween10And175Billion) {
  struct Published {
    double billions;
    int heads, hidden, layers, tp, pp, gpus, batch;
    double tflops;
  };
  for (const Published& p : {Published{18.4, 48, 6144, 40, 8, 1, 256, 1024, 135},
                             {39.1, 64, 8192, 48, 8, 2, 512, 1536, 138},
                             {76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140},
                             {145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148}}) {
    const ModelShape model{"", p.layers, p.hidden, p.heads, 51200, 2048};
    EXPECT_NEAR(static_cast<double>(model.parameters()) / 1e9, p.billions, 0.005 * p.billions);
    Cluster a100;
    a100.gpus = p.gpus;
    a100.machine.tflops = 312;
    a100.machine.host.gbps = 2400;
    a100.machine.rail.gbps = 200;
    Wanted wanted;
    wanted.batch = p.batch;
    wanted.tp = p.tp;
    wanted.pp = p.pp;
    wanted.schedule = "1f1b";
    const Plan plan = make_plan(model, a100, wanted);
    ASSERT_FALSE(plan.layouts.empty()) << p.billions;
    // The paper counts recomputation as work.
    const Layout& best = plan.layouts.front();
    const double rate = best.mfu * a100.machine.tflops * (best.recompute ? 4.0 / 3 : 1);
    EXPECT_NEAR(rate / p.tflops, 1, 0.2) << p.billions << " B, " << best.recompute;
  }
}

TEST(PlanCommand, EveryScheduleIsPlannedOrRefusedWithTheReason) {
  for (const char* schedule : {"sequential", "dataflow", "gpipe", "1f1b", "zero-bubble"}) {
    const Output o = weft(std::string("plan --model gpt3 --gpus 1024 --tp 8 --pp 8 --json --batch "
                                      "512 --schedule ") +
                          schedule);
    ASSERT_NE(o.exit_code, 4) << o.text;
    EXPECT_EQ(json::parse(o.text)["layouts"][0]["schedule"], schedule);
  }
  EXPECT_THAT(weft("plan --model gpt3 --gpus 1024 --tp 8 --pp 64 --schedule interleaved").text,
              HasSubstr("96 layers are not shared out alike by"));
  EXPECT_THAT(weft("plan --model gpt3 --gpus 96 --tp 8 --pp 3 --batch 8 --micro-batch 1 --schedule "
                   "interleaved")
                  .text,
              HasSubstr("2 micro-batches are no multiple of 3"));
  EXPECT_THAT(weft("plan --model gpt3 --gpus 8 --tp 8 --pp 1 --schedule interleaved").text,
              HasSubstr("--schedule interleaved with --pp 1: there is no pipeline"));
  EXPECT_THAT(
      weft("plan --model gpt2 --gpus 1 --schedule gpipe").text,
      HasSubstr("--schedule gpipe with --tp 1 and --dp 1 of --gpus 1: there is no pipeline"));
  EXPECT_THAT(weft("plan --model gpt2 --gpus 8 --tp 4 --dp 2 --schedule gpipe").text,
              HasSubstr("--schedule gpipe with --tp 4 and --dp 2 of --gpus 8: there is no"));
  // ZeRO 2 and 3 with a pipeline are valid layouts.
  const json both =
      json::parse(weft("plan --model gpt3 --gpus 1024 --batch 512 --zero 3 --pp 2 --json").text);
  EXPECT_EQ(both["layouts"][0]["zero"], 3);
  EXPECT_EQ(both["layouts"][0]["pp"], 2);
}

// ---- mistakes

std::string mistakes(const ModelShape& m, Cluster c, Wanted w) {
  std::string all;
  for (const std::string& s : make_plan(m, c, w).warnings) all += s + "\n";
  return all;
}

TEST(Mistakes, EachIsNamedWithItsPrice) {
  Cluster c;
  c.gpus = 64;
  Wanted w;
  w.tp = 16;
  w.dp = 4;
  EXPECT_THAT(mistakes(known_model("gpt3"), c, w),
              HasSubstr("tensor parallelism over 16 GPUs leaves"));
  w = {};
  w.batch = 32;
  w.pp = 8;
  w.tp = 8;
  w.microbatch = 8;
  EXPECT_THAT(mistakes(known_model("gpt3"), c, w),
              HasSubstr("4 micro-batches for 8 stages: ranks wait"));
  w.schedule = "zero-bubble";  // less bubble than with 1f1b
  const Plan plan = make_plan(known_model("gpt3"), c, w);
  const Layout& l = plan.layouts.empty() ? plan.closest.front() : plan.layouts.front();
  EXPECT_THAT(mistakes(known_model("gpt3"), c, w),
              HasSubstr(fmt::format("ranks wait {:.0f} % of the time", 100 * l.bubble)));
  w = {};
  w.tp = w.pp = 1;
  w.zero = 0;
  EXPECT_THAT(mistakes(model_of_size(10e9, 32, 0, 0, 2048), c, w),
              HasSubstr("200.0 GB; ZeRO 1, 2, 3 over 64 ranks: 42.5, 22.8, 3.1 GB"));
  c.gpus = 8;
  w = {};
  w.tp = 4;
  EXPECT_THAT(mistakes(known_model("gpt2"), c, w), HasSubstr("the model fits one GPU"));
  for (const int batch : {4, 12}) {  // not divisible over 8 GPUs
    w.batch = batch;
    EXPECT_THAT(mistakes(known_model("gpt2"), c, w), Not(HasSubstr("the model fits one GPU")));
  }
  w = {};
  w.pp = 8;
  w.tp = 1;
  EXPECT_THAT(
      mistakes(known_model("gpt2"), c, w),
      HasSubstr("computes as much as 4.5 of them, on 8 stages: the slowest stage sets the"));
  c.gpus = 64;
  c.machine.rail.gbps = 0.8;
  w = {};
  w.batch = 64;
  w.tp = w.pp = 1;
  EXPECT_THAT(mistakes(known_model("gpt2-xl"), c, w), HasSubstr("the interconnect is too slow"));
}

}  // namespace
}  // namespace weft::train
