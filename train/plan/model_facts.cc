// Known models, and the formulas of model_facts.h. Does not depend on the cluster.
#include "train/plan/model_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "topo/base/status.h"
#include "topo/base/text.h"
#include "train/model/mfu.h"

namespace weft::train {
namespace {

const ModelShape kModels[] = {
    {"gpt2", 12, 768, 12, 50257, 1024},
    {"gpt2-medium", 24, 1024, 16, 50257, 1024},
    {"gpt2-large", 36, 1280, 20, 50257, 1024},
    {"gpt2-xl", 48, 1600, 25, 50257, 1024},
    {"gpt3", 96, 12288, 96, 50257, 2048},
    // arXiv 2407.21783, table 3
    {"llama3-8b", 32, 4096, 32, 128256, 8192, 14336, {.kv_heads = 8}},
    {"llama3-70b", 80, 8192, 64, 128256, 8192, 28672, {.kv_heads = 8}},
    {"llama3-405b", 126, 16384, 128, 128256, 8192, 53248, {.kv_heads = 8}},
    // arXiv 2401.04088, table 1
    {"mixtral-8x7b",
     32,
     4096,
     32,
     32000,
     32768,
     14336,
     {.kv_heads = 8},
     {.experts = 8, .active = 2, .width = 14336}},
    // arXiv 2412.19437, section 4.2
    {"deepseek-v3",
     61,
     7168,
     128,
     129280,
     4096,
     18432,
     {.head_size = 192, .q_rank = 1536, .kv_rank = 512, .rope_size = 64, .value_size = 128},
     {.experts = 256, .active = 8, .shared = 1, .width = 2048, .dense_layers = 3, .bias = true}}};
constexpr int kHeadSize = 128;

}  // namespace

GptShape ModelShape::shape() const {
  const auto n = [](int value) { return static_cast<Index>(value); };
  return {n(vocabulary), n(sequence), n(hidden), n(heads), n(layers)};
}

std::int64_t ModelShape::key_size() const {
  return attention.head_size > 0 ? attention.head_size : hidden / heads;
}
std::int64_t ModelShape::value_size() const {
  return attention.value_size > 0 ? attention.value_size : key_size();
}
std::int64_t ModelShape::kv_width() const {
  const int kv = attention.kv_heads > 0 ? attention.kv_heads : heads;
  return kv * (key_size() + value_size());
}
std::int64_t ModelShape::cached() const {
  return attention.kv_rank > 0 ? attention.kv_rank + attention.rope_size : kv_width();
}

std::int64_t ModelShape::attention_parameters() const {
  if (gpt()) return 4 * h() * h() + 4 * h();
  const std::int64_t out = heads * value_size() * h();
  const AttentionParts& a = attention;
  if (a.kv_rank == 0) return h() * q_width() + h() * kv_width() + out;
  // Down-projections to the two latent vectors, their norms, up-projections to the heads.
  return h() * a.q_rank + a.q_rank + a.q_rank * q_width() + h() * (a.kv_rank + a.rope_size) +
         a.kv_rank + a.kv_rank * heads * (key_size() - a.rope_size + value_size()) + out;
}
std::int64_t ModelShape::ffn_parameters() const {
  if (gpt()) return 8 * h() * h() + 5 * h();
  if (moe.experts == 0) return 3 * h() * ffn;
  const std::int64_t router = moe.experts * (h() + (moe.bias ? 1 : 0));
  return (moe.experts + moe.shared) * expert_parameters() + router;
}
std::int64_t ModelShape::active_ffn_parameters() const {
  return ffn_parameters() -
         (moe.experts - moe.active) * (moe.experts > 0 ? expert_parameters() : 0);
}
std::int64_t ModelShape::blocks() const {
  const int dense = layers - moe_layers();
  const std::int64_t of_dense = moe.experts > 0 ? 3 * h() * ffn : ffn_parameters();
  return layers * attention_parameters() + dense * of_dense +
         (moe.experts > 0 ? moe_layers() * ffn_parameters() : 0);
}
std::int64_t ModelShape::parameters() const {
  if (gpt()) return static_cast<std::int64_t>(parameter_count(shape()));
  return blocks() + 2 * h() * layers + h() + 2 * std::int64_t{vocabulary} * h();
}
std::int64_t ModelShape::active_parameters() const {
  return parameters() - moe_layers() * (ffn_parameters() - active_ffn_parameters());
}
double ModelShape::block_flops() const {
  if (gpt()) return block_flops_per_token(shape());
  const double active =
      static_cast<double>(active_parameters() - h() - 2 * std::int64_t{vocabulary} * h());
  return 6 * active / layers +
         6.0 * heads * static_cast<double>(key_size() + value_size()) * sequence;
}
// An untied embedding has no FLOPs.
double ModelShape::flops() const {
  if (gpt()) return flops_per_token(shape());
  return layers * block_flops() + 6.0 * vocabulary * hidden;
}

const std::vector<std::string>& known_models() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ModelShape& m : kModels) all.push_back(m.name);
    return all;
  }();
  return names;
}

ModelShape known_model(std::string_view name) {
  for (const ModelShape& m : kModels)
    if (m.name == name) return m;
  throw Error(fmt::format("no model '{}'{}; there are: {}; or use --params", name,
                          did_you_mean(name, known_models()), fmt::join(known_models(), ", ")));
}

ModelShape model_of_size(double parameters, int layers, int hidden, int heads, int sequence) {
  if (!(parameters >= 1e5 && parameters <= 1e18))
    throw Error(fmt::format("--params {}: at least 100000 (1e5) and at most 1e18", parameters));
  if (layers == 0 && hidden > 0 && parameters / (12.0 * hidden * hidden) > 1e9)
    throw Error(fmt::format("--params {} with --width {}: more layers than can be counted",
                            parameters, hidden));
  ModelShape m;
  m.sequence = sequence;
  m.asked = parameters;
  // The blocks have 12 L h^2 parameters.
  m.layers =
      layers > 0 ? layers
      : hidden > 0
          ? std::max(1, static_cast<int>(std::lround(parameters / (12.0 * hidden * hidden))))
          : std::max(
                1,
                static_cast<int>(
                    std::lround(std::cbrt(parameters / (12.0 * kHeadSize * kHeadSize)) / 4) * 4));
  const double h = std::sqrt(parameters / (12.0 * m.layers));
  m.hidden = hidden > 0
                 ? hidden
                 : std::max(kHeadSize, static_cast<int>(std::lround(h / kHeadSize)) * kHeadSize);
  m.heads = heads > 0 ? heads : std::max(1, m.hidden / kHeadSize);
  if (m.hidden % m.heads != 0)
    throw Error(fmt::format("hidden {} is not a multiple of {} heads: use another --heads",
                            m.hidden, m.heads));
  // Must not overflow with any vocabulary and sequence.
  if (12.0 * m.layers * m.hidden * m.hidden + 0x1p32 * m.hidden > 9e18)
    throw Error(fmt::format("{} layers of hidden size {} are more parameters than can be counted",
                            m.layers, m.hidden));
  m.name = fmt::format("{} layers, hidden {}, {} heads", m.layers, m.hidden, m.heads);
  return m;
}

double state_bytes_per_parameter(int zero, int d) {
  const double of_stage[] = {kStateBytes, 4 + 16.0 / d, 2 + 18.0 / d, kStateBytes / d};
  return of_stage[zero];
}

Precision precision_of(std::string_view type) {
  if (type == "bf16" || type == "fp16") return {2, 4};
  if (type == "float") return {4, 4};
  if (type == "double") return {8, 8};
  throw Error(fmt::format("--type {}: there are bf16, fp16, float and double", type));
}

std::string with_commas(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

double parse_amount(std::string_view flag, std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  double value = std::strtod(copy.c_str(), &end);
  std::string unit(end);
  if (unit.ends_with('B') && unit != "B") unit.pop_back();
  bool known = end != copy.c_str() && std::isfinite(value) && value > 0;
  if (known && !unit.empty()) {
    static constexpr std::string_view kUnits = "KMGT";
    const auto power = kUnits.find(static_cast<char>(std::toupper(unit[0])));
    const bool binary = unit.size() == 2 && unit[1] == 'i';
    known = power != std::string_view::npos && (unit.size() == 1 || binary);
    if (known) value *= std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  if (!known)
    throw Error(fmt::format("{} {}: expected a number as in 80G, 1.5T, 80GiB or 10e9", flag, text));
  return value;
}

}  // namespace weft::train
