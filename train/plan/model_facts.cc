// Known models, and the formulas of model_facts.h. This file knows no cluster.
#include "train/plan/model_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "topo/base/status.h"
#include "topo/base/text.h"

namespace weft::train {
namespace {

const ModelShape kModels[] = {{"gpt2", 12, 768, 12, 50257, 1024},
                              {"gpt2-medium", 24, 1024, 16, 50257, 1024},
                              {"gpt2-large", 36, 1280, 20, 50257, 1024},
                              {"gpt2-xl", 48, 1600, 25, 50257, 1024},
                              {"gpt3", 96, 12288, 96, 50257, 2048}};
constexpr int kHeadSize = 128;

}  // namespace

GptShape ModelShape::shape() const {
  const auto n = [](int value) { return static_cast<Index>(value); };
  return {n(vocabulary), n(sequence), n(hidden), n(heads), n(layers)};
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
  throw Error(fmt::format("no model '{}'{}; there are: {}; or say --params", name,
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
  // 12 L h^2 parameters in the blocks.
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
    throw Error(fmt::format("hidden {} is no multiple of {} heads: say another --heads", m.hidden,
                            m.heads));
  // Also with a vocabulary and a sequence of any size.
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

Precision precision_of(std::string_view type, bool half_sums) {
  if (type == "bf16" || type == "fp16") return {2, 4, half_sums};
  if (half_sums)
    throw Error(
        fmt::format("--half-sums with --type {}: only 16-bit gradients have such sums; "
                    "leave one out",
                    type));
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
