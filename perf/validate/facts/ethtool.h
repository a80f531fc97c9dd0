// What `ethtool` shows of an interface: by ioctl, or from what the program itself printed.
// Internal to the room.
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
  std::optional<double> rate_gbps;       // of the link as trained
  std::optional<double> most_rate_gbps;  // of the advertised link modes, else of the supported
  std::optional<std::string> driver, firmware, fec;
  Readings module;  // gauges of the transceiver: "module.celsius", "module.celsius.most"
};

// Asks the kernel, about an interface of this network namespace. Fields stay empty where the
// driver does not answer.
EthtoolSettings ask_ethtool(const std::string& netdev);
// The driver's statistics by their names, without those of single queues ("rx3_packets"), which
// are many and add up to others.
Readings ask_ethtool_statistics(const std::string& netdev);

// The same from text: what `ethtool I`, `ethtool -a I`, `ethtool -i I` and `ethtool -S I` print,
// in one file or in part.
EthtoolSettings settings_in_text(const std::string& path);
Readings statistics_in_text(const std::string& path);

// "400000baseKR4/Full" as 400; 0 for names that are no link modes.
double rate_of_link_mode(const std::string& name);
// Takes temperature and received power from the memory of a QSFP module (SFF-8636), with limits
// where the memory has its page 3.
void take_module(std::span<const std::uint8_t> memory, Readings& gauges);
// The same from the pages of a CMIS module: the lower memory, page 02h and page 11h; an empty page
// is one that the module lacks.
void take_cmis(std::span<const std::uint8_t> lower, std::span<const std::uint8_t> limits,
               std::span<const std::uint8_t> monitors, Readings& gauges);
void ask_cmis(const std::string& netdev, Readings& gauges);
// Counters "fec.corrected_blocks", "fec.uncorrectable_blocks", "fec.corrected_bits", of those that
// the driver has; and from the attributes of the kernel's answer.
void ask_fec_errors(const std::string& netdev, Readings& into);
void take_fec_errors(std::span<const std::byte> answer, Readings& into);
bool of_one_queue(const std::string& statistic);

}  // namespace weft::fabric
