// Data that only ethtool's netlink interface provides: corrected and uncorrectable FEC errors, and
// paged modules (CMIS). Source: Linux, Documentation/networking/ethtool-netlink.rst; OIF CMIS 5.2,
// tables 8-10 (lower memory), 8-47 (page 02h) and 8-81 (page 11h).
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>

#include <algorithm>
#include <array>

#include "perf/validate/facts/ethtool.h"
#include "perf/validate/facts/netlink.h"

namespace weft::fabric {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
void add_value(Bytes& attributes, int type, T value) {
  add_attribute(attributes, type, std::as_bytes(std::span(&value, 1)));
}

// Returns the generic netlink family ID of ethtool; 0: the kernel has none.
int ethtool_family() {
  static const int family = [] {
    const genlmsghdr header = {CTRL_CMD_GETFAMILY, 1, 0};
    Bytes name;
    add_attribute(name, CTRL_ATTR_FAMILY_NAME, std::as_bytes(std::span(ETHTOOL_GENL_NAME)));
    const Bytes answer =
        ask_kernel(NETLINK_GENERIC, GENL_ID_CTRL, std::as_bytes(std::span(&header, 1)), name);
    int found = 0;
    for_each_attribute(answer, [&](int type, Attributes payload) {
      if (type == CTRL_ATTR_FAMILY_ID) found = value_in<std::uint16_t>(payload).value_or(0);
    });
    return found;
  }();
  return family;
}

// Sends a request about an interface; `more`: attributes after the interface's name.
Bytes ask_about(const std::string& netdev, int command, std::uint32_t flags, const Bytes& more) {
  const int family = ethtool_family();
  if (family == 0) return {};
  const genlmsghdr header = {static_cast<std::uint8_t>(command), ETHTOOL_GENL_VERSION, 0};
  Bytes about, attributes;
  add_attribute(about, ETHTOOL_A_HEADER_DEV_NAME,
                std::as_bytes(std::span(netdev.c_str(), netdev.size() + 1)));
  if (flags != 0) add_value(about, ETHTOOL_A_HEADER_FLAGS, flags);
  constexpr int kHeader = 1;  // in every message: ETHTOOL_A_FEC_HEADER and its equivalents
  add_attribute(attributes, kHeader | NLA_F_NESTED, about);
  attributes.insert(attributes.end(), more.begin(), more.end());
  return ask_kernel(NETLINK_GENERIC, family, std::as_bytes(std::span(&header, 1)), attributes);
}

// Reads 128 bytes of the module's memory; empty if the page does not exist.
std::vector<std::uint8_t> page_of(const std::string& netdev, int page) {
  constexpr std::uint32_t kPage = 128;
  constexpr std::uint8_t kAddress = 0x50;           // on the module's I2C bus
  const std::uint32_t from = page < 0 ? 0 : kPage;  // the lower memory belongs to no page
  Bytes more;
  add_value(more, ETHTOOL_A_MODULE_EEPROM_OFFSET, from);
  add_value(more, ETHTOOL_A_MODULE_EEPROM_LENGTH, kPage);
  add_value(more, ETHTOOL_A_MODULE_EEPROM_PAGE, static_cast<std::uint8_t>(std::max(page, 0)));
  add_value(more, ETHTOOL_A_MODULE_EEPROM_BANK, std::uint8_t{0});
  add_value(more, ETHTOOL_A_MODULE_EEPROM_I2C_ADDRESS, kAddress);
  std::vector<std::uint8_t> memory;
  const Bytes answer = ask_about(netdev, ETHTOOL_MSG_MODULE_EEPROM_GET, 0, more);
  for_each_attribute(answer, [&](int type, Attributes payload) {
    if (type == ETHTOOL_A_MODULE_EEPROM_DATA)
      for (const std::byte one : payload) memory.push_back(static_cast<std::uint8_t>(one));
  });
  return memory.size() == kPage ? memory : std::vector<std::uint8_t>();
}

}  // namespace

void take_fec_errors(Attributes answer, Readings& into) {
  const auto take = [&](int type, Attributes payload) {
    const char* name = type == ETHTOOL_A_FEC_STAT_CORRECTED   ? "fec.corrected_blocks"
                       : type == ETHTOOL_A_FEC_STAT_UNCORR    ? "fec.uncorrectable_blocks"
                       : type == ETHTOOL_A_FEC_STAT_CORR_BITS ? "fec.corrected_bits"
                                                              : nullptr;
    // The first value is the sum over all lanes.
    if (const auto sum = value_in<std::uint64_t>(payload); name && sum)
      into[name] = {ReadingState::kValue, *sum};
  };
  for_each_attribute(answer, [&](int type, Attributes payload) {
    if (type == ETHTOOL_A_FEC_STATS) for_each_attribute(payload, take);
  });
}

void ask_fec_errors(const std::string& netdev, Readings& into) {
  take_fec_errors(ask_about(netdev, ETHTOOL_MSG_FEC_GET, ETHTOOL_FLAG_STATS, {}), into);
}

void take_cmis(std::span<const std::uint8_t> lower, std::span<const std::uint8_t> limits,
               std::span<const std::uint8_t> monitors, Readings& gauges) {
  constexpr std::array<int, 4> kCmis = {0x18, 0x19, 0x1b, 0x1e};  // QSFP-DD, OSFP, DSFP, QSFP+
  constexpr std::size_t kPage = 128, kTemperature = 14, kReceived = 186 - kPage, kLanes = 8;
  constexpr std::size_t kLowReceived = 194 - kPage;
  if (lower.size() < kPage || std::ranges::find(kCmis, lower[0]) == kCmis.end()) return;
  const auto word = [](std::span<const std::uint8_t> at, std::size_t i) {
    return static_cast<unsigned>(at[i] << 8 | at[i + 1]);
  };
  const auto put = [&](const char* name, unsigned value) {
    gauges[name] = {ReadingState::kValue, value};
  };
  const bool limited = limits.size() >= kPage;
  if (word(lower, kTemperature) != 0) put("module.celsius", lower[kTemperature]);
  if (limited && word(limits, 0) != 0) put("module.celsius.most", limits[0]);
  if (monitors.size() < kPage) return;
  unsigned least = 0;  // of all lanes with light: a module may have fewer than kLanes
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (const unsigned power = word(monitors, kReceived + 2 * lane); power > 0)
      least = least == 0 ? power : std::min(least, power);
  if (least == 0) return;
  put("module.received_tenth_uw", least);
  if (limited && word(limits, kLowReceived) != 0)
    put("module.received_tenth_uw.least", word(limits, kLowReceived));
}

void ask_cmis(const std::string& netdev, Readings& gauges) {
  const std::vector<std::uint8_t> lower = page_of(netdev, -1);
  if (!lower.empty()) take_cmis(lower, page_of(netdev, 0x02), page_of(netdev, 0x11), gauges);
}

}  // namespace weft::fabric
