// Exchanges between ranks before transports exist: options that must be the same on all ranks,
// usable cores, and which ranks' memory can be mapped. This file is independent of what the options
// do, and of the transport that maps memory.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "coll/runtime/calibrate.h"
#include "coll/runtime/core.h"
#include "topo/base/log.h"
#include "transport/gpu/device.h"
#include "transport/gpu/pinned.h"
#include "transport/shm/reach.h"

namespace weft {
namespace {

struct Mode {
  const char* what;
  std::string value;  // one word
  const char* said_by;
};

const char* on_off(bool on) { return on ? "on" : "off"; }

std::string one_word(std::string text) {
  for (char& c : text)
    if (std::isspace(static_cast<unsigned char>(c)) != 0) c = '_';
  return text.empty() ? "none" : text;
}

// The cores this process may use, one bit each.
cpu_set_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    CPU_ZERO(&set);
    CPU_SET(0, &set);
  }
  return set;
}

}  // namespace

std::vector<std::string> Core::agree_on_modes(const std::string& refused) {
  const std::vector<Mode> modes = {
      {"the transport", options.transport, "WorldOptions::transport"},
      {"cross_rail", options.cross_rail, "WEFT_CROSS_RAIL and WorldOptions::cross_rail"},
      {"integrity mode", on_off(options.integrity), "WEFT_INTEGRITY and WorldOptions::integrity"},
      {"deterministic mode", on_off(options.deterministic),
       "WEFT_DETERMINISTIC and WorldOptions::deterministic"},
      {"failover of rails", on_off(options.failover), "WEFT_FAILOVER and WorldOptions::failover"},
      {"spreading over rails", on_off(options.spread), "WEFT_SPREAD and WorldOptions::spread"},
      // With a declared rate, calibrate() does not measure it.
      {"the declared rate of a rail in Gb/s (0: none)",
       fmt::format("{}", declared_rail_gbps(options.rail_gbps)),
       "WEFT_RAIL_GBPS and WorldOptions::rail_gbps"},
      {"the list of slow ports", one_word(options.slow_ports),
       "WEFT_SLOW_PORTS and WorldOptions::slow_ports"}};
  std::string mine = device() != nullptr ? "device" : "none";
  for (const Mode& m : modes) mine += " " + m.value;
  const auto all = job->all_gather(mine + '\n' + refused);
  std::vector<std::string> first(modes.size()), all_refused;
  for (Rank r = 0; r < job->size(); ++r) {
    const std::string& text = all[static_cast<std::size_t>(r)];
    const std::size_t line = std::min(text.find('\n'), text.size());
    all_refused.push_back(text.substr(std::min(line + 1, text.size())));
    std::istringstream words(text.substr(0, line));
    std::string word;
    words >> word;
    if (word == "device") links.message_slice = kStagedSlice;
    links.has_device.push_back(word == "device");
    for (std::size_t m = 0; m < modes.size(); ++m) {
      words >> word;
      if (r == 0) first[m] = word;
      if (word != first[m])
        throw Error(
            fmt::format("{} is {} on rank 0 and {} on rank {}; {} must be the same on all "
                        "ranks",
                        modes[m].what, first[m], word, r, modes[m].said_by));
    }
  }
  return all_refused;
}

// Launchers bind each rank to a few cores: compares the number of ranks with the union of these
// cores.
void Core::count_cores() {
  const std::string& machine = topology->place(job->rank()).machine;
  const cpu_set_t mine = usable_cores();
  const auto said =
      job->all_gather_in_group(machine.substr(0, machine.find(':')),  // as Topology::same_kernel()
                               std::string_view(reinterpret_cast<const char*>(&mine), sizeof mine));
  cpu_set_t together;
  CPU_ZERO(&together);
  int here = 0;
  for (Rank r = 0; r < job->size(); ++r) {
    if (!topology->same_kernel(r, job->rank())) continue;
    const std::string& text = said[static_cast<std::size_t>(r)];
    if (text.size() != sizeof mine)
      throw Error(fmt::format("rank {} runs another version of weft", r));
    ++here;
    cpu_set_t theirs;
    std::memcpy(&theirs, text.data(), sizeof theirs);
    CPU_OR(&together, &together, &theirs);
  }
  oversubscription = std::max(1.0, static_cast<double>(here) / std::max(1, CPU_COUNT(&together)));
  oversubscribed = oversubscription > 1;
}

std::vector<Rank> Core::meet_machine(const std::vector<std::string>& offers) {
  const Rank me = job->rank();
  std::vector<Rank> others;
  std::vector<std::string> machines;
  for (Rank r = 0; r < job->size(); ++r) {
    machines.push_back(topology->place(r).machine);
    if (r != me && machines.back() == topology->place(me).machine) others.push_back(r);
  }
  const std::vector<std::string> refused = agree_on_modes(shm::refusals(others, offers));
  count_cores();
  for (Rank r = 0; r < job->size(); ++r) {
    const std::string why = shm::reason_of(refused[static_cast<std::size_t>(r)]);
    if (why.empty()) continue;
    if (options.transport == "shm")
      throw Error(
          fmt::format("transport shm: rank {} cannot map {}; --transport auto takes tcp "
                      "between them",
                      r, why));
    if (me == 0) log().warn("weft: rank {} cannot map {}: no shared memory between them", r, why);
    break;
  }
  return shm::memory_groups(machines, refused);
}

}  // namespace weft
