// Queries drivers through ethtool's ioctl. This file contains the requests, but no driver's counter
// names.
#include "perf/validate/facts/ethtool.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "perf/validate/facts/sources.h"

namespace weft::fabric {
namespace {

// A socket for requests to the driver of one interface.
class Asker {
 public:
  explicit Asker(std::string netdev)
      : netdev_(std::move(netdev)), socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~Asker() {
    if (socket_ >= 0) close(socket_);
  }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  // Sends `request`; the driver overwrites it with the answer. Returns false if refused.
  bool ask(void* request) const {
    ifreq wrapped{};
    if (socket_ < 0 || netdev_.size() >= sizeof wrapped.ifr_name) return false;
    std::ranges::copy(netdev_, wrapped.ifr_name);
    wrapped.ifr_data = static_cast<char*>(request);
    return ioctl(socket_, SIOCETHTOOL, &wrapped) == 0;
  }

 private:
  const std::string netdev_;
  const int socket_;
};

// Requests followed by room for the answer; 8-byte words keep all of them aligned.
template <typename Head>
Head* head_of(std::vector<std::uint64_t>& words) {
  return reinterpret_cast<Head*>(words.data());
}
template <typename Head>
std::vector<std::uint64_t> room_for(std::size_t bytes_behind) {
  return std::vector<std::uint64_t>((sizeof(Head) + bytes_behind + 7) / 8);
}

std::vector<std::string> strings_of(const Asker& asker, std::uint32_t set) {
  auto size = room_for<ethtool_sset_info>(sizeof(std::uint32_t));
  auto* info = head_of<ethtool_sset_info>(size);
  info->cmd = ETHTOOL_GSSET_INFO;
  info->sset_mask = std::uint64_t{1} << set;
  if (!asker.ask(info) || info->sset_mask == 0) return {};
  const std::uint32_t count = info->data[0];
  // The driver may have added strings meanwhile, and does not check the buffer's size.
  auto names = room_for<ethtool_gstrings>((std::size_t{count} * 2 + 64) * ETH_GSTRING_LEN);
  auto* strings = head_of<ethtool_gstrings>(names);
  strings->cmd = ETHTOOL_GSTRINGS;
  strings->string_set = set;
  strings->len = count;
  if (!asker.ask(strings)) return {};
  std::vector<std::string> result;
  const char* at = reinterpret_cast<const char*>(strings->data);
  for (std::uint32_t i = 0; i < std::min(count, strings->len); ++i, at += ETH_GSTRING_LEN)
    result.emplace_back(at, strnlen(at, ETH_GSTRING_LEN));
  return result;
}

void ask_link_settings(const Asker& asker, EthtoolSettings& settings) {
  auto words = room_for<ethtool_link_settings>(3 * 127 * sizeof(std::uint32_t));
  auto* link = head_of<ethtool_link_settings>(words);
  link->cmd = ETHTOOL_GLINKSETTINGS;
  // If the mask length is wrong, the kernel refuses and returns the right length negated.
  if (!asker.ask(link) || link->link_mode_masks_nwords >= 0) return;
  const int length = -link->link_mode_masks_nwords;
  *link = {};
  link->cmd = ETHTOOL_GLINKSETTINGS;
  link->link_mode_masks_nwords = static_cast<std::int8_t>(length);
  if (!asker.ask(link)) return;
  if (link->speed != 0 && link->speed < INT32_MAX) settings.rate_gbps = link->speed / 1000.0;
  const std::vector<std::string> modes = strings_of(asker, ETH_SS_LINK_MODES);
  const auto fastest = [&](const std::uint32_t* mask) {
    double most = 0;
    for (std::size_t i = 0; i < std::min(modes.size(), static_cast<std::size_t>(length) * 32); ++i)
      if (mask[i / 32] >> (i % 32) & 1) most = std::max(most, rate_of_link_mode(modes[i]));
    return most;
  };
  const double advertised = fastest(link->link_mode_masks + length);
  const double most = advertised > 0 ? advertised : fastest(link->link_mode_masks);
  if (most > 0) settings.most_rate_gbps = most;
}

constexpr std::uint32_t kModuleBytes = 640;  // a lower page of 128 bytes and four upper pages

void ask_module(const Asker& asker, Readings& gauges) {
  constexpr std::uint32_t kQsfp = 3;  // ETH_MODULE_SFF_8636; the ioctl cannot page through CMIS
  ethtool_modinfo kind{};
  kind.cmd = ETHTOOL_GMODULEINFO;
  if (!asker.ask(&kind) || kind.type != kQsfp) return;
  auto words = room_for<ethtool_eeprom>(kModuleBytes);
  auto* memory = head_of<ethtool_eeprom>(words);
  memory->cmd = ETHTOOL_GMODULEEEPROM;
  memory->len = std::min(kind.eeprom_len, kModuleBytes);
  if (asker.ask(memory)) take_module({memory->data, memory->len}, gauges);
}

std::optional<std::string> ask_fec(const Asker& asker) {
  ethtool_fecparam fec{};
  fec.cmd = ETHTOOL_GFECPARAM;
  if (!asker.ask(&fec)) return std::nullopt;
  constexpr std::pair<std::uint32_t, const char*> kModes[] = {{ETHTOOL_FEC_OFF, "off"},
                                                              {ETHTOOL_FEC_RS, "RS"},
                                                              {ETHTOOL_FEC_BASER, "BaseR"},
                                                              {ETHTOOL_FEC_LLRS, "LLRS"}};
  for (const auto& [bit, name] : kModes)
    if (fec.active_fec == bit) return name;
  return std::nullopt;  // no FEC mode, or not yet negotiated
}

std::optional<std::string> text_in(const char* field, std::size_t bytes) {
  std::string text(field, strnlen(field, bytes));
  if (text.empty() || text == "N/A") return std::nullopt;
  return text;
}

}  // namespace

double rate_of_link_mode(const std::string& name) {
  char* end = nullptr;
  const double mbps = std::strtod(name.c_str(), &end);
  return std::string_view(end).starts_with("base") && mbps > 0 ? mbps / 1000 : 0;
}

// Source: SFF-8636, 6.2.4 and 6.6 (thresholds of page 03h); numbers are big-endian.
void take_module(std::span<const std::uint8_t> memory, Readings& gauges) {
  constexpr std::size_t kTemperature = 22, kPower = 34, kLanes = 4, kPage3 = 512;
  constexpr std::size_t kHotAlarm = kPage3, kLowPowerAlarm = kPage3 + 50;
  const auto word = [&](std::size_t at) { return memory[at] << 8 | memory[at + 1]; };
  if (memory.size() < kPower + 2 * kLanes || word(kTemperature) == 0) return;  // copper cable
  const auto put = [&](const char* name, int value) {
    gauges[name] = {ReadingState::kValue, static_cast<std::uint64_t>(value)};
  };
  put("module.celsius", word(kTemperature) >> 8);
  int least = word(kPower);
  for (std::size_t lane = 1; lane < kLanes; ++lane)
    least = std::min(least, word(kPower + 2 * lane));
  put("module.received_tenth_uw", least);
  if (memory.size() < kModuleBytes || word(kHotAlarm) == 0) return;
  put("module.celsius.most", word(kHotAlarm) >> 8);
  put("module.received_tenth_uw.least", word(kLowPowerAlarm));
}

bool of_one_queue(const std::string& statistic) {
  for (const std::string_view start : {"rx_queue_", "tx_queue_", "rx", "tx", "ch", "ptp_ch"})
    if (statistic.starts_with(start) && statistic.size() > start.size() &&
        std::isdigit(static_cast<unsigned char>(statistic[start.size()])))
      return true;
  return false;
}

EthtoolSettings ask_ethtool(const std::string& netdev) {
  EthtoolSettings settings;
  const Asker asker(netdev);
  ethtool_pauseparam pause{};
  pause.cmd = ETHTOOL_GPAUSEPARAM;
  if (asker.ask(&pause)) {
    settings.pause_rx = pause.rx_pause != 0;
    settings.pause_tx = pause.tx_pause != 0;
  }
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  if (asker.ask(&driver)) {
    settings.driver = text_in(driver.driver, sizeof driver.driver);
    settings.firmware = text_in(driver.fw_version, sizeof driver.fw_version);
  }
  ask_link_settings(asker, settings);
  settings.fec = ask_fec(asker);
  ask_module(asker, settings.module);
  if (settings.module.empty()) ask_cmis(netdev, settings.module);
  return settings;
}

Readings ask_ethtool_statistics(const std::string& netdev) {
  Readings readings;
  ask_fec_errors(netdev, readings);
  const Asker asker(netdev);
  const std::vector<std::string> names = strings_of(asker, ETH_SS_STATS);
  auto words = room_for<ethtool_stats>((names.size() * 2 + 64) * sizeof(std::uint64_t));
  auto* statistics = head_of<ethtool_stats>(words);
  statistics->cmd = ETHTOOL_GSTATS;
  statistics->n_stats = static_cast<std::uint32_t>(names.size());
  if (names.empty() || !asker.ask(statistics)) return readings;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), statistics->n_stats); ++i)
    if (!of_one_queue(names[i]))
      readings["eth." + names[i]] = {ReadingState::kValue, statistics->data[i]};
  return readings;
}

}  // namespace weft::fabric
