// Compares the options that must be the same on all ranks, before anything is built from them.
// This file does not know what the options do.
#include <fmt/format.h>

#include <sstream>
#include <string>
#include <vector>

#include "coll/runtime/calibrate.h"
#include "coll/runtime/core.h"
#include "transport/gpu/device.h"
#include "transport/gpu/pinned.h"

namespace weft {
namespace {

struct Mode {
  const char* what;
  std::string value;  // one word
  const char* said_by;
};

const char* on_off(bool on) { return on ? "on" : "off"; }

}  // namespace

void Core::agree_on_modes() {
  const std::vector<Mode> modes = {
      {"the transport", options.transport, "WorldOptions::transport"},
      {"cross_rail", options.cross_rail, "WEFT_CROSS_RAIL and WorldOptions::cross_rail"},
      {"integrity mode", on_off(options.integrity), "WEFT_INTEGRITY and WorldOptions::integrity"},
      {"deterministic mode", on_off(options.deterministic),
       "WEFT_DETERMINISTIC and WorldOptions::deterministic"},
      {"failover of rails", on_off(options.failover), "WEFT_FAILOVER and WorldOptions::failover"},
      {"spreading over rails", on_off(options.spread), "WEFT_SPREAD and WorldOptions::spread"},
      // Who is told a rate does not measure it.
      {"the declared rate of a rail in Gb/s (0: none)",
       fmt::format("{}", declared_rail_gbps(options.rail_gbps)),
       "WEFT_RAIL_GBPS and WorldOptions::rail_gbps"}};
  std::string mine = device() != nullptr ? "device" : "none";
  for (const Mode& m : modes) mine += " " + m.value;
  const auto all = job->all_gather(mine);
  std::vector<std::string> first(modes.size());
  for (Rank r = 0; r < job->size(); ++r) {
    std::istringstream words(all[static_cast<std::size_t>(r)]);
    std::string word;
    words >> word;
    if (word == "device") message_slice = kStagedSlice;
    has_device.push_back(word == "device");
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
}

}  // namespace weft
