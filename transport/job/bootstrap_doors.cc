// Doors are the ports on which survivors listen after rank 0 has failed. This file resolves and
// probes them.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "transport/control/address.h"
#include "transport/job/job_assembly.h"

namespace weft {

std::chrono::milliseconds answer_time(const JobSpec& spec) {
  using namespace std::chrono_literals;
  return std::min<std::chrono::milliseconds>(spec.timeout / 2,
                                             2 * spec.size <= listen_queue() ? 5s : 24h);
}

std::uint16_t port_in(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() ? port : 0;
}

bool on_loopback(std::string_view address) noexcept {
  return address == "::1" || address.starts_with("127.");
}

bool all_on_loopback(std::string_view addresses) noexcept {
  while (!addresses.empty()) {
    const std::string_view one = addresses.substr(0, addresses.find(','));
    if (!one.empty() && one != "localhost" && !on_loopback(one)) return false;
    addresses.remove_prefix(std::min(one.size() + 1, addresses.size()));
  }
  return true;
}

std::vector<Endpoint> door_endpoints(const std::string& door) {
  const auto space = door.find(' ');
  if (space == std::string::npos) return {};
  const std::vector<std::uint16_t> port{port_in(door.substr(space + 1))};
  if (port[0] == 0) return {};
  std::string problem;
  return resolve(door.substr(0, space), port, problem);
}

std::vector<bool> mute_doors(const JobSpec& spec, std::span<const std::string> doors) {
  std::vector<std::vector<Endpoint>> at;
  std::vector<const Endpoint*> tried;
  for (const std::string& door : doors) at.push_back(door_endpoints(door));
  for (const auto& of : at) tried.push_back(of.empty() ? nullptr : &of.front());
  std::vector<bool> mute;
  // The kernel reports EHOSTUNREACH after 3 s for a host of the same network, for each door again.
  for (const int found : knock(tried, answer_time(spec)))
    mute.push_back(found == EINPROGRESS || found == EHOSTUNREACH || found == ENETUNREACH);
  return mute;
}

std::vector<int> knock(const std::vector<const Endpoint*>& doors, std::chrono::milliseconds limit) {
  std::vector<int> found(doors.size(), ECONNREFUSED);
  std::vector<Fd> tried(doors.size());
  std::vector<pollfd> polled(doors.size(), {-1, POLLOUT, 0});
  std::size_t left = 0;
  for (std::size_t i = 0; i < doors.size(); ++i) {
    if (!doors[i]) continue;
    tried[i] = start_connect(*doors[i], found[i]);
    if (!tried[i]) continue;
    found[i] = EINPROGRESS;
    polled[i].fd = tried[i].get();
    ++left;
  }
  const auto until = Clock::now() + limit;
  while (left > 0) {
    const auto now = Clock::now();
    if (now >= until || ::poll(polled.data(), polled.size(), poll_ms(until, now)) == 0) break;
    for (std::size_t i = 0; i < doors.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      found[i] = connect_error(polled[i].fd);
      polled[i].fd = -1;
      --left;
    }
  }
  return found;
}

}  // namespace weft
