// Reads the settings of verbs from the environment. This file accesses no device.
#include "transport/verbs/settings.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <system_error>

#include "topo/base/environment.h"
#include "topo/base/status.h"
#include "transport/messages/unexpected_limit.h"

namespace weft {
namespace {

template <class T>
void read(T& value, const char* variable, std::int64_t least, std::int64_t most) {
  if (is_set(variable)) value = static_cast<T>(required_number(variable, least, most));
}

// Parses the format of sysfs and the subnet manager.
int partition_key(const char* variable) {
  const std::string text = environment(variable);
  unsigned key = 0;
  const char* const end = text.data() + text.size();
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const auto [at, error] = std::from_chars(text.data() + (hex ? 2 : 0), end, key, 16);
  if (!hex || error != std::errc{} || at != end || key > 0xffff || (key & 0x7fff) == 0)
    throw Error(
        fmt::format("{}={} is not a partition key: 0x0001 to 0xffff, as the files of "
                    "/sys/class/infiniband/DEVICE/ports/1/pkeys have them",
                    variable, text));
  return static_cast<int>(key);
}

void read_switch(bool& value, const char* variable) {
  int number = value;
  read(number, variable, 0, 1);
  value = number != 0;
}

bool power_of_two(std::size_t n) { return n > 0 && (n & (n - 1)) == 0; }

}  // namespace

VerbsSettings verbs_settings() {
  VerbsSettings s;
  read(s.port, "WEFT_VERBS_PORT", 0, 255);
  read(s.gid_index, "WEFT_VERBS_GID_INDEX", -1, 255);
  if (is_set("WEFT_VERBS_PKEY")) s.pkey = partition_key("WEFT_VERBS_PKEY");
  read(s.mtu, "WEFT_VERBS_MTU", 0, 4096);
  if (s.mtu != 0 && (s.mtu < 256 || !power_of_two(static_cast<std::size_t>(s.mtu))))
    throw Error(
        fmt::format("WEFT_VERBS_MTU={} is not one of 256, 512, 1024, 2048, 4096 (0: what the ports "
                    "of both ends have)",
                    s.mtu));
  read(s.traffic_class, "WEFT_VERBS_TRAFFIC_CLASS", 0, 255);
  if (is_set("WEFT_VERBS_DSCP")) {
    int dscp = 0;
    read(dscp, "WEFT_VERBS_DSCP", 0, 63);
    if (is_set("WEFT_VERBS_TRAFFIC_CLASS") && s.traffic_class >> 2 != dscp)
      throw Error(
          fmt::format("WEFT_VERBS_DSCP={} contradicts WEFT_VERBS_TRAFFIC_CLASS={}, whose "
                      "DSCP is {}; set one of them",
                      dscp, s.traffic_class, s.traffic_class >> 2));
    if (!is_set("WEFT_VERBS_TRAFFIC_CLASS")) s.traffic_class = dscp << 2;
  }
  read(s.service_level, "WEFT_VERBS_SL", 0, 15);
  read(s.retry_count, "WEFT_VERBS_RETRY_COUNT", 0, 7);
  read(s.timeout, "WEFT_VERBS_TIMEOUT", 0, 31);
  read(s.rnr_retry, "WEFT_VERBS_RNR_RETRY", 0, 7);
  read(s.min_rnr_timer, "WEFT_VERBS_MIN_RNR_TIMER", 0, 31);
  read(s.qps, "WEFT_VERBS_QPS", 1, 64);
  read(s.send_depth, "WEFT_VERBS_SEND_DEPTH", 16, 16384);
  read(s.connections, "WEFT_VERBS_CONNECTIONS", 1, 1 << 14);
  read(s.slots, "WEFT_VERBS_SLOTS", 4, 4096);
  read(s.slot_bytes, "WEFT_VERBS_SLOT_BYTES", 0, 1 << 20);
  if (s.slot_bytes != 0 && s.slot_bytes < 256)
    throw Error(fmt::format("WEFT_VERBS_SLOT_BYTES={} is less than 256 (0: by the port's rate)",
                            s.slot_bytes));
  if (s.slot_bytes % 64 != 0)
    throw Error(fmt::format("WEFT_VERBS_SLOT_BYTES={} is not a multiple of 64", s.slot_bytes));
  read(s.windows, "WEFT_VERBS_WINDOWS", 1, 4096);
  s.unexpected_bytes = unexpected_limit();
  read(s.inline_bytes, "WEFT_VERBS_INLINE_BYTES", 0, 4096);
  read(s.cache_entries, "WEFT_VERBS_CACHE_ENTRIES", 0, 1 << 24);
  read(s.cache_bytes, "WEFT_VERBS_CACHE_BYTES", 0, std::int64_t{1} << 50);
  read_switch(s.one_thread, "WEFT_VERBS_ONE_THREAD");
  read_switch(s.extended, "WEFT_VERBS_WR");
  read_switch(s.ece, "WEFT_VERBS_ECE");
  read_switch(s.huge_pages, "WEFT_VERBS_HUGE_PAGES");
  read_switch(s.relaxed_ordering, "WEFT_VERBS_RELAXED_ORDERING");
  return s;
}

}  // namespace weft
