#include "coll/select/slow_ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "topo/base/status.h"

namespace weft {
namespace {

template <class T>
bool number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// The hosts with that name or number, or all hosts for "*"; empty if no host matches.
std::vector<int> hosts_named(std::string_view text, const std::vector<std::string>& names) {
  std::vector<int> found;
  const auto hosts = static_cast<int>(names.size());
  for (int h = 0; h < hosts; ++h)
    if (text == "*" || (!text.empty() && text == names[static_cast<std::size_t>(h)]))
      found.push_back(h);
  int one = -1;
  if (found.empty() && number(text, one) && one >= 0 && one < hosts) found.push_back(one);
  return found;
}

std::vector<int> rails_named(std::string_view text, const std::vector<int>& numbers) {
  std::vector<int> found;
  int one = -1;
  if (text != "*" && !number(text, one)) return found;
  for (std::size_t r = 0; r < numbers.size(); ++r)
    if (text == "*" || numbers[r] == one) found.push_back(static_cast<int>(r));
  return found;
}

std::vector<PortRate> ports_named(std::string_view what, std::string_view text,
                                  const PortNames& names) {
  const auto equals = text.rfind('='), colon = text.rfind(':', equals);
  std::vector<PortRate> ports;
  double rate = -1;
  if (equals != text.npos && colon != text.npos && number(text.substr(equals + 1), rate) &&
      rate >= 0 && rate <= 1)
    for (const int host : hosts_named(text.substr(0, colon), names.hosts))
      for (const int rail : rails_named(text.substr(colon + 1, equals - colon - 1), names.rails))
        ports.push_back({host, rail, rate});
  if (!ports.empty()) return ports;
  const bool named = std::ranges::any_of(names.hosts, [](auto& name) { return !name.empty(); });
  const bool gap = names.rails.back() >= std::ssize(names.rails);
  throw Error(fmt::format(
      "{} {}: give HOST:RAIL=FRACTION, a host from 0 to {}{} or *, {} or *, and a fraction of its "
      "rate from 0 (dead) to 1, as in 1:0=0.5",
      what, text, names.hosts.size() - 1, named ? ", its name" : "",
      gap ? fmt::format("a rail of {}", fmt::join(names.rails, ", "))
          : fmt::format("a rail from 0 to {}", names.rails.back())));
}

}  // namespace

std::vector<PortRate> parse_slow_ports(std::string_view what, std::string_view text,
                                       const PortNames& names) {
  std::vector<PortRate> ports;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    for (const PortRate& p : ports_named(what, text.substr(at, end - at), names))
      ports.push_back(p);
    at = end + 1;
  }
  const auto place = [](const PortRate& p) { return std::pair{p.host, p.rail}; };
  std::ranges::sort(ports, {}, place);
  if (const auto twice = std::ranges::adjacent_find(ports, {}, place); twice != ports.end())
    throw Error(fmt::format("{}: host {} has two fractions for its port on rail {}; give one", what,
                            twice->host, names.rails[static_cast<std::size_t>(twice->rail)]));
  for (std::size_t h = 0; h < names.hosts.size(); ++h)
    if (std::ranges::count_if(ports, [&](const PortRate& p) {
          return p.host == static_cast<int>(h) && p.rate == 0;
        }) == std::ssize(names.rails))
      throw Error(fmt::format(
          "{}: all ports of host {} are dead, so nothing can reach it; leave one", what, h));
  std::erase_if(ports, [](const PortRate& p) { return p.rate >= 1; });
  return ports;
}

std::string text_of(const std::vector<PortRate>& ports, const PortNames& names) {
  std::string text;
  for (const PortRate& p : ports) {
    const std::string& name = names.hosts[static_cast<std::size_t>(p.host)];
    text += fmt::format("{}{}:{}={}", text.empty() ? "" : ",",
                        name.empty() ? std::to_string(p.host) : name,
                        names.rails[static_cast<std::size_t>(p.rail)], p.rate);
  }
  return text;
}

std::vector<double> take_rail_rates(std::vector<PortRate>& ports, int hosts, int rails) {
  std::vector<double> rates(static_cast<std::size_t>(rails), 1.0);
  for (int rail = 0; rail < rails; ++rail) {
    double best = 0;
    int here = 0;
    for (const PortRate& p : ports)
      if (p.rail == rail) ++here, best = std::max(best, p.rate);
    if (here < hosts || best == 0) continue;
    rates[static_cast<std::size_t>(rail)] = best;
    for (PortRate& p : ports)
      if (p.rail == rail) p.rate /= best;
  }
  std::erase_if(ports, [](const PortRate& p) { return p.rate >= 1; });
  return rates;
}

std::vector<SlowPort> ports_of_ranks(const std::vector<PortRate>& ports,
                                     const std::vector<std::vector<Rank>>& hosts,
                                     const std::function<int(Rank)>& rail_of) {
  std::vector<SlowPort> slow;
  for (const PortRate& p : ports) {
    const std::vector<Rank>& ranks = hosts[static_cast<std::size_t>(p.host)];
    for (std::size_t l = 0; l < ranks.size(); ++l)
      if (rail_of(ranks[l]) == p.rail) slow.push_back({p.host, static_cast<int>(l), p.rate});
  }
  std::ranges::sort(slow, {}, [](const SlowPort& p) { return std::pair{p.host, p.local}; });
  return slow;
}

}  // namespace weft
