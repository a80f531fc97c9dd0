// Fills in a port's ethtool data from the driver or from recorded output.
#include <cstdio>
#include <fstream>

#include "perf/validate/facts/ethtool.h"
#include "perf/validate/facts/sources.h"

namespace weft::fabric {
namespace {

// Splits "  key:   value" into key and value, trimmed.
std::pair<std::string, std::string> key_and_value(const std::string& line) {
  const auto first = line.find_first_not_of(" \t");
  const auto colon = line.rfind(':');
  if (first == std::string::npos || colon == std::string::npos || colon <= first) return {};
  const auto value = line.find_first_not_of(" \t", colon + 1);
  const auto last = line.find_last_not_of(" \t\r");
  const auto end = line.find_last_not_of(" \t", colon - 1);
  return {line.substr(first, end + 1 - first),
          value == std::string::npos ? "" : line.substr(value, last - value + 1)};
}

// A line of `ethtool -m`: "Module temperature : 45.26 degrees C / 113.47 degrees F".
void take_module_line(const std::string& key, const std::string& value, Readings& module) {
  const auto put = [&](const char* name, double number) {
    module[name] = {ReadingState::kValue, static_cast<std::uint64_t>(number)};
  };
  double number = 0;
  if (std::sscanf(value.c_str(), "%lf", &number) != 1 || number <= 0) return;  // "N/A", "-inf dBm"
  constexpr double kTenthUw = 1e4;                                             // per mW
  if (key == "Module temperature") put("module.celsius", number);
  if (key == "Module temperature high alarm threshold") put("module.celsius.most", number);
  if (key.starts_with("Rcvr signal avg optical power")) {
    const auto known = module.find("module.received_tenth_uw");
    if (known == module.end() || static_cast<double>(known->second.value) > number * kTenthUw)
      put("module.received_tenth_uw", number * kTenthUw);
  }
  if (key == "Laser rx power low alarm threshold")
    put("module.received_tenth_uw.least", number * kTenthUw);
}

}  // namespace

EthtoolSettings settings_in_text(const std::string& path) {
  EthtoolSettings settings;
  std::ifstream file(path);
  bool pause = false, advertised = false;
  for (std::string line; std::getline(file, line);) {
    const bool title = !line.empty() && line.front() != ' ' && line.front() != '\t';
    const auto [key, value] = key_and_value(line);
    // In "Pause parameters for eth1:" the lines are not indented.
    if (title && value.empty()) pause = line.starts_with("Pause parameters");
    if (!key.empty() && !title) advertised = key == "Advertised link modes";
    if (pause && key == "RX") settings.pause_rx = value == "on";
    if (pause && key == "TX") settings.pause_tx = value == "on";
    if (double mbps = 0; key == "Speed" && std::sscanf(value.c_str(), "%lfMb/s", &mbps) == 1)
      settings.rate_gbps = mbps / 1000;
    take_module_line(key, value, settings.module);
    if (key == "Active FEC encoding" && value != "None")
      settings.fec = value == "Off" ? "off" : value;
    if (title && key == "driver" && !value.empty()) settings.driver = value;
    if (title && key == "firmware-version" && !value.empty() && value != "N/A")
      settings.firmware = value;
    if (!advertised) continue;
    // The list continues in lines without a key.
    std::string modes = key.empty() ? line : value;
    for (std::size_t at = modes.find_first_not_of(" \t"); at != std::string::npos;
         at = modes.find_first_not_of(" \t", modes.find_first_of(" \t", at))) {
      const double rate = rate_of_link_mode(modes.substr(at));
      if (rate > settings.most_rate_gbps.value_or(0)) settings.most_rate_gbps = rate;
    }
  }
  return settings;
}

Readings statistics_in_text(const std::string& path) {
  Readings readings;
  std::ifstream file(path);
  bool statistics = false;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(" ") && !line.starts_with("\t")) {
      statistics = line.starts_with("NIC statistics");
      continue;
    }
    const auto [key, value] = key_and_value(line);
    if (statistics && !key.empty() && !of_one_queue(key))
      readings["eth." + key] = reading_from(value);
  }
  return readings;
}

void read_ethtool(PortFacts& port, const Sources& sources) {
  EthtoolSettings settings;
  if (sources.live && !port.netdev.empty()) settings = ask_ethtool(port.netdev);
  if (const std::string recording = recording_of(port, sources); !recording.empty())
    settings = settings_in_text(recording);
  port.pause_rx = settings.pause_rx;
  port.pause_tx = settings.pause_tx;
  port.most_rate_gbps = settings.most_rate_gbps;
  // veth and tun report a made-up speed (10 Gb/s) but advertise nothing.
  if (!port.rate_gbps && settings.most_rate_gbps) port.rate_gbps = settings.rate_gbps;
  if (!port.driver) port.driver = settings.driver;
  if (settings.fec) port.settings.emplace_back("FEC", *settings.fec);
  port.gauges.merge(settings.module);
  if (port.firmware || !settings.firmware) return;
  // mlx5 writes "28.41.1000 (MT_0000000838)".
  const std::string& firmware = *settings.firmware;
  const auto board = firmware.find(" (");
  port.firmware = firmware.substr(0, board);
  if (board != std::string::npos && firmware.ends_with(')'))
    port.board = firmware.substr(board + 2, firmware.size() - board - 3);
}

void ethtool_counters(const PortFacts& port, const Sources& sources, Readings& into) {
  if (sources.live && !port.netdev.empty()) into.merge(ask_ethtool_statistics(port.netdev));
  if (const std::string recording = recording_of(port, sources); !recording.empty())
    into.merge(statistics_in_text(recording));
}

}  // namespace weft::fabric
