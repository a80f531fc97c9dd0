// Tests whether this process can open the memory of other ranks, and groups ranks that can open
// each other's.
#include "transport/shm/reach.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "transport/memory/shared_region.h"

namespace weft::shm {
namespace {

// An offer is the path by which other processes open the memory, or this mark and an error.
constexpr char kNone = '!';

// Returns why this process cannot open the memory; empty if it can.
std::string why_not(const std::string& offer) {
  if (offer.empty()) return "it has no shareable memory";
  if (offer[0] == kNone) return offer.substr(1);
  const int fd = ::open(offer.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const int error = fd < 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  // Not a refusal: the later mapping reports this process's file limit.
  if (error == 0 || error == EMFILE || error == ENFILE) return "";
  return std::strerror(error);
}

}  // namespace

std::string memory_offer() {
  const int fd = region_directory_fd();
  if (fd < 0) return fmt::format("{}memfd_create: {}", kNone, std::strerror(memory_refused()));
  return fmt::format("/proc/{}/fd/{}", getpid(), fd);
}

std::string refusals(std::span<const Rank> others, std::span<const std::string> offers) {
  std::string ranks, first;
  const std::string mine = fmt::format("/proc/{}/", getpid());
  for (const Rank r : others) {
    const std::string& offer = offers[static_cast<std::size_t>(r)];
    const std::string why = offer.starts_with(mine) ? "" : why_not(offer);
    if (why.empty()) continue;
    if (first.empty())
      first = fmt::format("the memory of rank {}{}: {}", r,
                          offer.starts_with('/') ? fmt::format(" ({})", offer) : "", why);
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", r);
  }
  return ranks.empty() ? "" : ranks + ' ' + first;
}

std::vector<Rank> memory_groups(std::span<const std::string> machine,
                                std::span<const std::string> said) {
  std::set<std::pair<std::size_t, std::size_t>> apart;  // the lower rank first
  for (std::size_t r = 0; r < said.size(); ++r) {
    const char *at = said[r].data(), *const end = at + said[r].size();
    while (at != end && *at != ' ') {
      std::size_t other = 0;
      const auto [next, error] = std::from_chars(at, end, other);
      const bool more = next != end && *next == ',';
      if (error != std::errc() || next == end || (more && next + 1 == end) || other >= said.size())
        throw Error(fmt::format("rank {} runs another version of weft: '{}'", r, said[r]));
      apart.insert(std::minmax(r, other));
      at = more ? next + 1 : next;
    }
  }
  std::vector<std::vector<std::size_t>> groups;
  std::vector<Rank> lowest(machine.size());
  for (std::size_t r = 0; r < machine.size(); ++r) {
    const auto fits = [&](const std::vector<std::size_t>& group) {
      return machine[group[0]] == machine[r] &&
             (apart.empty() || std::ranges::none_of(group, [&](std::size_t other) {
                return apart.contains({other, r});
              }));
    };
    auto group = groups.begin();
    while (group != groups.end() && !fits(*group)) ++group;
    if (group == groups.end()) group = groups.insert(group, std::vector<std::size_t>{});
    group->push_back(r);
    lowest[r] = static_cast<Rank>(group->front());
  }
  return lowest;
}

std::string reason_of(std::string_view refusals) {
  const std::size_t space = refusals.find(' ');
  return space == std::string_view::npos ? "" : std::string(refusals.substr(space + 1));
}

}  // namespace weft::shm
