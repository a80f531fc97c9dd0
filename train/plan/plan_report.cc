// Prints a plan as text and as JSON. Computes nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "topo/base/text.h"
#include "train/plan/plan.h"

namespace weft::train {
namespace {

double gb(double bytes) { return bytes / 1e9; }

// GB with four digits, or all digits from 1000 on.
std::string digits(double bytes) {
  return gb(bytes) < 1000 ? fmt::format("{:.4g}", gb(bytes)) : fmt::format("{:.0f}", gb(bytes));
}

// "1,208.02"
std::string millions(std::int64_t value) {
  const std::int64_t hundredths = (value + 5000) / 10000;
  return fmt::format("{}.{:02}", with_commas(hundredths / 100), hundredths % 100);
}

// "advice    ...", with wrapped lines indented below the first.
std::string titled(const char* title, const std::string& text) {
  constexpr std::size_t kTitle = 10;
  return fmt::format("{:<{}}{}", title, kTitle,
                     wrapped(text, kColumns - kTitle, std::string(kTitle, ' ')));
}

// Describes the differences of a model from GPT.
std::string beside_gpt(const ModelShape& m) {
  if (m.gpt()) return "";
  std::string text;
  if (m.attention.kv_rank > 0)
    text = fmt::format("latent attention: {} numbers for q, {} for k and v", m.attention.q_rank,
                       m.attention.kv_rank);
  else
    text = fmt::format("{} heads of keys and values", m.attention.kv_heads);
  text += fmt::format("; SwiGLU of width {}", m.ffn);
  if (m.moe.experts > 0)
    text += fmt::format(
        "; {} experts of width {} in {} blocks, {} of them{} for a token: {:.2f} B parameters "
        "active",
        m.moe.experts, m.moe.width, m.moe_layers(), m.moe.active,
        m.moe.shared > 0 ? fmt::format(" and {} shared", m.moe.shared) : "",
        static_cast<double>(m.active_parameters()) / 1e9);
  text += fmt::format("; KV cache of {} bytes a token in 16 bits",
                      with_commas(2 * m.cached() * m.layers));
  return titled("", text) + "\n" +
         titled("", "weft train has no such model: these figures were compared with no run") + "\n";
}

std::string head(const Plan& plan) {
  const ModelShape& m = plan.model;
  const Cluster& c = plan.cluster;
  const double n = m.stated();
  const std::string parameters =
      fmt::format("{} parameters with embeddings and norms", with_commas(m.parameters())) +
      (m.asked > 0 ? fmt::format(" (near the {} asked for)", with_commas(std::llround(m.asked)))
                   : "");
  std::string text = fmt::format(
      "model     {}{} layers, hidden {}, {} heads, vocabulary {}, sequence {}\n"
      "          attention {} M + FFN {} M per block, {:.2f} B in {} blocks\n"
      "{}\n{}",
      m.asked > 0 ? "" : m.name + ": ", m.layers, m.hidden, m.heads, m.vocabulary, m.sequence,
      millions(m.attention_parameters()), millions(m.ffn_parameters()),
      static_cast<double>(m.blocks()) / 1e9, m.layers, titled("", parameters), beside_gpt(m));
  text += fmt::format(
      "cluster   {} GPUs, {} per host, {:.4g} GB each, {:.4g} TFLOP/s dense of which {:.0f} % are "
      "reached\n{}\n"
      "batch     {} sequences = {} tokens per step\n\n",
      c.gpus, c.gpus_per_host, gb(c.gpu_memory()), c.gpu_tflops(), 100 * c.efficiency,
      in_words(c.machine, true), plan.wanted.batch,
      with_commas(std::int64_t{plan.wanted.batch} * m.sequence));
  text += fmt::format(
      "state of one model replica, GB (20 bytes per parameter: weights 2, gradients 2, moments 8,\n"
      "fp32 weights 4, fp32 gradients 4), per GPU where d GPUs share it\n"
      "       d       plain  ZeRO-1  ZeRO-2  ZeRO-3\n");
  std::vector<int> degrees{1, 8};
  if (c.gpus > 8) degrees.push_back(c.gpus);
  for (const int d : degrees)
    text += fmt::format("{:>8}  {:>10}  {:>6}  {:>6}  {:>6}\n", d, digits(n * kStateBytes),
                        digits(n * state_bytes_per_parameter(1, d)),
                        digits(n * state_bytes_per_parameter(2, d)),
                        digits(n * state_bytes_per_parameter(3, d)));
  return text;
}

std::string schedule_of(const Layout& l) {
  return l.pp == 1 ? "-" : l.chunks > 1 ? fmt::format("interl. v{}", l.chunks) : l.schedule;
}

std::string times_of(std::span<const Layout> layouts) {
  std::string text =
      "                                           |  GB per |      step   wait     dp\n"
      "  tp  pp   dp zero schedule     mb x   m ac|     GPU |        ms   pipe    out    MFU"
      "     tok/s\n";
  for (const Layout& l : layouts)
    text += fmt::format(
        "{:>4}{:>4} {:>4}{:>5} {:<12}{:>3} x{:>4}{:>3} {:>8.1f} {:>11.1f} {:>5.1f}% {:>5.1f}% "
        "{:>5.1f}% {:>9.4g}\n",
        l.tp, l.pp, l.dp, l.zero, schedule_of(l), l.microbatch, l.microbatches,
        l.recompute ? "re" : "-", gb(l.memory.total()), 1e3 * l.step_s,
        100 * std::max(0.0, l.bubble), 100 * l.dp_exposed_s / l.step_s, 100 * l.mfu,
        l.tokens_per_s);
  return text +
         "ac re: activations are computed again. Nothing hides tensor-parallel transfers; "
         "gradients hide\nbehind the last micro-batch's backward pass, ZeRO-3's gathers behind all "
         "computing.\n";
}

std::string bytes_of(std::span<const Layout> layouts) {
  std::string text =
      "                  | GB per GPU                      | sent per GPU and step, GB\n"
      "  tp  pp   dp zero|   state  activ. logits    total |      tp      pp      dp    rail\n";
  for (const Layout& l : layouts)
    text += fmt::format(
        "{:>4}{:>4} {:>4}{:>5} {:>8.1f} {:>7.1f} {:>6.1f} {:>8.1f} {:>9.2f} {:>7.2f} {:>7.2f} "
        "{:>7.2f}{}\n",
        l.tp, l.pp, l.dp, l.zero, gb(l.memory.weights + l.memory.gradients + l.memory.optimizer),
        gb(l.memory.activations + l.memory.working), gb(l.memory.logits), gb(l.memory.total()),
        gb(l.tp_bytes), gb(l.pp_bytes), gb(l.dp_bytes), gb(l.dp_rail_bytes),
        (l.ep > 1 ? fmt::format("  ep {}: {:.2f}", l.ep, gb(l.ep_bytes)) : "") +
            (l.cp > 1 ? fmt::format("  cp {}: {:.2f}", l.cp, gb(l.cp_bytes)) : ""));
  return text;
}

}  // namespace

std::string to_text(const Plan& plan, int rows) {
  std::string text = head(plan);
  const auto& shown = plan.layouts.empty() ? plan.closest : plan.layouts;
  text += fmt::format(
      "\n{} of {} layouts fit{}\n", plan.fitting, plan.considered,
      plan.layouts.empty() ? "; the one that needs least:" : "; the fastest of each tp x pp x dp:");
  const std::span<const Layout> rows_shown(
      shown.data(), std::min(shown.size(), static_cast<std::size_t>(std::max(rows, 0))));
  text += times_of(rows_shown) + "\n" + bytes_of(rows_shown);
  text += fmt::format("\n{}\n", titled("advice", plan.advice));
  for (const std::string& w : plan.warnings) text += titled("warning", w) + "\n";
  return text;
}

std::string to_json(const Plan& plan, int rows) {
  using nlohmann::json;
  const ModelShape& m = plan.model;
  const double n = m.stated();
  json j;
  j["schema"] = "weft.plan/1";
  j["model"] = {{"name", m.name},
                {"layers", m.layers},
                {"hidden", m.hidden},
                {"heads", m.heads},
                {"vocabulary", m.vocabulary},
                {"sequence", m.sequence},
                {"attention_parameters_per_block", m.attention_parameters()},
                {"ffn_parameters_per_block", m.ffn_parameters()},
                {"block_parameters", m.blocks()},
                {"parameters", m.parameters()}};
  const Cluster& c = plan.cluster;
  j["cluster"] = {{"gpus", c.gpus},
                  {"gpus_per_host", c.gpus_per_host},
                  {"gpu_memory_bytes", c.gpu_memory()},
                  {"gpu_tflops", c.gpu_tflops()},
                  {"efficiency", c.efficiency},
                  {"machine", c.machine.name},
                  {"domain_GBps", c.host_GBps()},
                  {"rail_GBps", c.rail_GBps()},
                  {"domain_us", c.host_us()},
                  {"rail_us", c.rail_us()}};
  for (const int d : {1, 8, c.gpus})
    for (int zero = 0; zero <= 3; ++zero)
      j["state_bytes"][fmt::format("d{}", d)][fmt::format("zero{}", zero)] =
          n * state_bytes_per_parameter(zero, d);
  j["considered"] = plan.considered;
  j["fitting"] = plan.fitting;
  j["layouts"] = json::array();
  const auto& shown = plan.layouts.empty() ? plan.closest : plan.layouts;
  for (std::size_t i = 0; i < shown.size() && i < static_cast<std::size_t>(rows); ++i) {
    const Layout& l = shown[i];
    j["layouts"].push_back({{"tp", l.tp},
                            {"pp", l.pp},
                            {"dp", l.dp},
                            {"zero", l.zero},
                            {"schedule", l.schedule},
                            {"chunks", l.chunks},
                            {"microbatch", l.microbatch},
                            {"microbatches", l.microbatches},
                            {"recompute", l.recompute},
                            {"fits", l.fits},
                            {"bytes",
                             {{"weights", l.memory.weights},
                              {"gradients", l.memory.gradients},
                              {"optimizer", l.memory.optimizer},
                              {"activations", l.memory.activations},
                              {"logits", l.memory.logits},
                              {"working", l.memory.working},
                              {"total", l.memory.total()}}},
                            {"sent_bytes",
                             {{"tp", l.tp_bytes},
                              {"pp", l.pp_bytes},
                              {"dp", l.dp_bytes},
                              {"dp_rail", l.dp_rail_bytes}}},
                            {"step_s", l.step_s},
                            {"dp_exposed_s", l.dp_exposed_s},
                            {"tp_latency_s", l.tp_latency_s},
                            {"dp_latency_s", l.dp_latency_s},
                            {"bubble", l.bubble},
                            {"mfu", l.mfu},
                            {"tokens_per_s", l.tokens_per_s}});
  }
  j["advice"] = plan.advice;
  j["warnings"] = plan.warnings;
  return j.dump(2) + "\n";
}

}  // namespace weft::train
