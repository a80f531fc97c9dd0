// The table of foreign and earlier spellings of options.
#include "perf/cli/spellings.h"

#include <fmt/format.h>

#include <string_view>

namespace weft {
namespace {

struct Spelling {
  std::string_view command;  // the last word of the command; empty: every command
  std::string_view typed;    // with its hyphens
  std::string_view here;     // the option in its place
  std::string_view about = "";
};

constexpr Spelling kSpellings[] = {
    {"", "-n", "-N", "ranks"},
    {"", "--np", "-N", "ranks"},
    {"", "--iterations", "--iters"},
    {"replay", "-i", "-n", "steps"},
    {"", "--microbatches", "--micro-batches"},
    {"", "--microbatch", "--micro-batch"},
    {"", "--hidden", "--width"},
    {"", "--sequence", "--positions"},
    {"", "--rail-gbytes", "--rail-gbps", "in Gb/s: 8 times as many"},
    {"", "--domain-gbytes", "--host-gbps", "in Gb/s: 8 times as many"},
    {"", "--domain-us", "--host-us"},
    {"", "--reduce-GBps", "--reduce-gbs"},
    {"", "--copy-GBps", "--copy-gbs"},
    {"", "--stop-after", "--stop-after-s"},
    {"", "--grace", "--grace-ms", "milliseconds"},
    {"", "--after", "--after-s"},
    {"", "--counters", "--json"},
    {"softroce", "--timeout", "--limit-s"},
    {"", "--timeout", "--timeout-ms", "milliseconds"},
    {"", "--limit", "--limit-s"},
    {"", "--output", "--out"},
};

}  // namespace

std::string spelling_here(const CLI::App& command, const std::string& typed) {
  const std::string_view flag = std::string_view(typed).substr(0, typed.find('='));
  for (const Spelling& s : kSpellings) {
    if (s.typed != flag || (!s.command.empty() && s.command != command.get_name())) continue;
    if (command.get_option_no_throw(std::string(s.here)) == nullptr) continue;
    return fmt::format("{} is {} here{}", s.typed, s.here,
                       s.about.empty() ? "" : fmt::format(" ({})", s.about));
  }
  return "";
}

}  // namespace weft
