// Parses nccl-tests' split variables. Does not split communicators.
#include "perf/sweep/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "topo/base/status.h"

namespace weft {
namespace {

constexpr const char* kSplit = "NCCL_TESTS_SPLIT";
constexpr const char* kMask = "NCCL_TESTS_SPLIT_MASK";

// Parses a number; -1 if the text is not one.
long number(std::string_view text, int base) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.starts_with("0x") || text.starts_with("0X"))
    text.remove_prefix(2), base = 16;
  else if (text.starts_with("0b") || text.starts_with("0B"))
    text.remove_prefix(2), base = 2;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size() ? value : -1;
}

}  // namespace

std::vector<int> Groups::names() const {
  std::vector<int> all;
  for (const int color : colors)
    if (std::ranges::find(all, color) == all.end()) all.push_back(color);
  return all;
}

std::vector<Rank> Groups::members(int color) const {
  std::vector<Rank> all;
  for (std::size_t r = 0; r < colors.size(); ++r)
    if (colors[r] == color) all.push_back(static_cast<Rank>(r));
  return all;
}

Groups groups_of(const std::string& variable, const std::string& value, int ranks) {
  Groups groups{fmt::format("{}={}", variable, value), {}};
  const auto refuse = [&](const char* why) {
    throw Error(fmt::format("{}: {}; write AND, OR, MOD or DIV and a number, as in MOD 8",
                            groups.from, why));
  };
  std::string text = value;
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' && c != 'x' ? static_cast<char>(c - 32) : c;
  });
  char op = variable == kMask ? '&' : 0;
  std::string_view rest = text;
  for (const auto& [word, letter] : {std::pair{"AND", '&'},
                                     {"OR", '|'},
                                     {"MOD", '%'},
                                     {"DIV", '/'},
                                     {"&", '&'},
                                     {"|", '|'},
                                     {"%", '%'},
                                     {"/", '/'}})
    if (op == 0 && rest.starts_with(word)) {
      op = letter;
      rest.remove_prefix(std::string_view(word).size());
    }
  if (op == 0) refuse("no such split");
  const long n = number(rest, variable == kMask ? 16 : 10);
  if (n < 0) refuse("not a number");
  if (n == 0 && (op == '%' || op == '/')) refuse("a division by 0");
  for (int r = 0; r < ranks; ++r) {
    const auto v = static_cast<int>(n);
    groups.colors.push_back(op == '&' ? r & v : op == '|' ? r | v : op == '%' ? r % v : r / v);
  }
  return groups;
}

Groups groups_from_environment(int ranks) {
  for (const char* variable : {kMask, kSplit})
    if (const char* value = std::getenv(variable)) return groups_of(variable, value, ranks);
  return {"", std::vector<int>(static_cast<std::size_t>(ranks))};
}

Shape shape_of(const Topology& topology, const std::vector<Rank>& members, Rank me, Rank root) {
  Shape shape;
  shape.rank = me;
  shape.nranks = static_cast<int>(members.size());
  shape.root = root;
  std::vector<std::vector<Rank>> hosts(static_cast<std::size_t>(topology.nhosts()));
  for (std::size_t i = 0; i < members.size(); ++i)
    hosts[static_cast<std::size_t>(topology.host(members[i]))].push_back(static_cast<Rank>(i));
  for (auto& host : hosts)
    if (!host.empty()) shape.hosts.push_back(std::move(host));
  return shape;
}

}  // namespace weft
