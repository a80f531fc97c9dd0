// Parses and formats sizes in bytes. Does not depend on any flag.
#include "perf/cli/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "topo/base/status.h"

namespace weft {
namespace {

constexpr std::string_view kUnits = "KMGT";
// A process's address space (128 TiB). Multiplied by a number of ranks, it still fits 64 bits.
constexpr std::uint64_t kMost = std::uint64_t{128} << 40;

}  // namespace

std::uint64_t parse_bytes(std::string_view flag, std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    throw Error(fmt::format("{} {}: {}; write bytes like 8, 16K, 64M or 1G (K = 1024)", flag,
                            text.empty() ? "''" : text, why));
  };
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) refuse("too large");
  if (error != std::errc{}) refuse("not a size");
  std::string unit(rest, end);
  for (char& c : unit)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  if (!unit.empty() && unit != "B") {
    const auto power = kUnits.find(unit[0]);
    if (power == std::string_view::npos) refuse("not a size");
    if (const std::string tail = unit.substr(1); !tail.empty() && tail != "B" && tail != "IB")
      refuse("not a size");
    for (std::size_t i = 0; i <= power; ++i) {
      if (value > std::numeric_limits<std::uint64_t>::max() / 1024) refuse("too large");
      value *= 1024;
    }
  }
  if (value == 0) refuse("a size is at least 1");
  if (value > kMost) refuse("too large");
  return value;
}

std::string format_bytes(std::uint64_t bytes) {
  std::string unit;
  for (char u : kUnits) {
    if (bytes < 1024 || bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = u;
  }
  return fmt::format("{}{}", bytes, unit);
}

std::vector<std::uint64_t> size_ladder(std::uint64_t begin, std::uint64_t end, std::uint64_t factor,
                                       std::uint64_t step) {
  constexpr std::uint64_t kMostSizes = 100000;
  if (begin > end)
    throw Error(fmt::format("-b {} is above -e {}: the first size cannot exceed the last",
                            format_bytes(begin), format_bytes(end)));
  if (begin == end) return {begin};
  if (step == 0 && factor < 2)
    throw Error(fmt::format("-f {}: the factor between sizes is at least 2", factor));
  if (step > 0 && (end - begin) / step >= kMostSizes)
    throw Error(fmt::format("-i {}: {} sizes from {} to {}, and {} are the most; use a larger step",
                            format_bytes(step), (end - begin) / step + 1, format_bytes(begin),
                            format_bytes(end), kMostSizes));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = begin;;) {
    sizes.push_back(size);
    if (step > 0 ? size > end - std::min(step, end) : size > end / factor) return sizes;
    size = step > 0 ? size + step : size * factor;
  }
}

}  // namespace weft
