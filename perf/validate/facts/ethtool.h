// Reads an interface's `ethtool` data by ioctl or from recorded output. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "perf/validate/facts/counter.h"

namespace weft::fabric {

struct EthtoolSettings {
  std::optional<bool> pause_rx, pause_tx;
  std::optional<double> rate_gbps;  // rate of the link as trained
  // Rate of the fastest advertised, or else supported, link mode.
  std::optional<double> most_rate_gbps;
  std::optional<std::string> driver, firmware, fec;
  Readings module;  // transceiver gauges: "module.celsius", "module.celsius.most"
};

// Queries the kernel about an interface of this network namespace. Fields stay empty if the driver
// does not answer.
EthtoolSettings ask_ethtool(const std::string& netdev);
// Returns the driver's statistics by name. Per-queue statistics ("rx3_packets") are left out: they
// are numerous and add up to others.
Readings ask_ethtool_statistics(const std::string& netdev);

// Parse one file with the output of `ethtool I`, `ethtool -a I`, `ethtool -i I` and `ethtool -S I`,
// or of some of these.
EthtoolSettings settings_in_text(const std::string& path);
Readings statistics_in_text(const std::string& path);

// Converts "400000baseKR4/Full" to 400; 0 for names that are not link modes.
double rate_of_link_mode(const std::string& name);
// Parses temperature and received power from the memory of a QSFP module (SFF-8636), and their
// limits if the memory includes page 3.
void take_module(std::span<const std::uint8_t> memory, Readings& gauges);
// Parses the same values from a CMIS module's lower memory, page 02h and page 11h; a page that the
// module lacks is empty.
void take_cmis(std::span<const std::uint8_t> lower, std::span<const std::uint8_t> limits,
               std::span<const std::uint8_t> monitors, Readings& gauges);
void ask_cmis(const std::string& netdev, Readings& gauges);
// Add the counters "fec.corrected_blocks", "fec.uncorrectable_blocks" and "fec.corrected_bits" that
// the driver supports; take_fec_errors() parses the attributes of the kernel's answer.
void ask_fec_errors(const std::string& netdev, Readings& into);
void take_fec_errors(std::span<const std::byte> answer, Readings& into);
bool of_one_queue(const std::string& statistic);

}  // namespace weft::fabric
