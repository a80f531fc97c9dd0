// Bit errors of links: corrected, uncorrected, and damage not detected by a link.
#include <algorithm>
#include <array>

#include "perf/validate/checks/counters.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

Judged bit_errors(const Check& check, const Observed& observed) {
  static constexpr std::string_view kNames[] = {"eth.rx_pcs_symbol_err_phy",
                                                "eth.rx_symbol_err_phy",
                                                "eth.rx_pcs_symbol_err",
                                                "eth.rx_fec_uncorrectable_blocks",  // bnxt_en
                                                "fec.uncorrectable_blocks",  // ethtool, netlink
                                                "mlxlink.effective_errors",
                                                "ib.symbol_error",
                                                "ib.link_error_recovery",
                                                "ib.local_link_integrity_errors",
                                                "ib.excessive_buffer_overrun_errors"};
  return judge_counters(check, observed,
                        {.names = kNames, .direction = Direction::kReceive, .required = is_mlx5});
}

// Bits per second corrected by a port's FEC; nullopt: the port does not report them.
std::optional<double> corrected_per_second(const Observed& observed, const PortFacts& port) {
  if (observed.facts.seconds <= 0) return std::nullopt;
  // A corrected block had at least one wrong bit.
  for (const std::string_view name : {"eth.rx_corrected_bits_phy", "fec.corrected_bits",
                                      "fec.corrected_blocks", "mlxlink.raw_errors"})
    if (const auto bits = change_of(port, name)) return *bits / observed.facts.seconds;
  std::optional<double> sum;
  for (const std::string_view lane : {"eth.rx_err_lane_0_phy", "eth.rx_err_lane_1_phy",
                                      "eth.rx_err_lane_2_phy", "eth.rx_err_lane_3_phy"})
    if (const auto bits = change_of(port, lane)) sum = sum.value_or(0) + *bits;
  if (!sum) return std::nullopt;
  return *sum / observed.facts.seconds;
}

constexpr double kMostTimesMedian = 10;       // corrected bits, relative to the fleet's median
constexpr double kLeastCorrectedPerS = 1000;  // fewer are normal
constexpr std::size_t kLeastPortsForMedian = 3;

Judged corrected_bits(const Check& check, const Observed& observed) {
  std::vector<double> all;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (const auto rate = corrected_per_second(observed, port)) all.push_back(*rate);
  const double median = median_of(all);
  const double baseline = std::max(median, kLeastCorrectedPerS / kMostTimesMedian);
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    static constexpr std::array<std::string_view, 1> kNames = {"eth.rx_corrected_bits_phy"};
    const Where where = at_port(host, port, Direction::kReceive);
    const auto rate = corrected_per_second(observed, port);
    if (!rate) {
      if (auto unknown = doubt(check, where, moves_of(host, port, kNames), false))
        return std::vector{*unknown};
      return std::nullopt;
    }
    if (all.size() < kLeastPortsForMedian || *rate <= kMostTimesMedian * baseline)
      return std::vector<Finding>{};
    Finding finding = make_finding(check, where);
    set_number(finding, Unit::kRatio, *rate / baseline, 1);
    add_number(finding, "corrected_bits_per_s", *rate, Unit::kCount, median);
    return std::vector{finding};
  });
}

Judged crc_errors(const Check& check, const Observed& observed) {
  static constexpr std::string_view kNames[] = {
      "eth.rx_crc_errors_phy", "ib.port_rcv_errors",   "ib.port_rcv_remote_physical_errors",
      "net.rx_crc_errors",     "net.rx_frame_errors",  "net.tx_carrier_errors",
      "eth.rx_fcs_err_frames", "eth.rx_crc_errors.nic"};  // bnxt_en, ice
  return judge_counters(
      check, observed,
      {.names = kNames, .direction = Direction::kReceive, .required = is_mlx5, .per_packet = true});
}

Judged icrc_errors(const Check& check, const Observed& observed) {
  static constexpr std::array<std::string_view, 1> kNames = {"hw.rx_icrc_encapsulated"};
  return judge_counters(check, observed,
                        {.names = kNames,
                         .direction = Direction::kReceive,
                         .required = is_mlx5_roce,
                         .per_packet = true});
}

constexpr Check kBitsRows[] = {
    {"bit-errors", CheckKind::kPassive, Severity::kFail, "no uncorrected bit errors",
     "rx_pcs_symbol_err_phy, symbol_error, link_error_recovery; blocks of ethtool --show-fec -I. "
     "Seen on hardware: no",
     "0 in the run",
     "The link delivers bits that its error correction could not repair. Every such bit costs a "
     "packet.",
     "Clean the fibre ends, reseat both transceivers, then replace the cable. `mlxlink -c` shows "
     "the eye and the error rate of each lane.",
     bit_errors},
    {"corrected-bits", CheckKind::kPassive, Severity::kWarn, "few corrected bit errors",
     "rx_corrected_bits_phy, rx_err_lane_*_phy; ethtool --show-fec -I. Seen on hardware: no",
     "< 10 x the fleet's median",
     "The error correction of this port corrects far more bits than that of other ports: the link "
     "still works, but is the next to fail.",
     "Clean or replace the optic at the next maintenance, before it starts to lose packets.",
     corrected_bits},
    {"crc-errors", CheckKind::kPassive, Severity::kFail, "no packets with a wrong checksum",
     "rx_crc_errors_phy, port_rcv_errors, rx_crc_errors", "0 in the run",
     "Packets arrived corrupted and were dropped: the link into this port, or a link before it on "
     "a cut-through path, changes bits.",
     "Replace the cable or optic into this port. If several ports behind one switch show errors, "
     "look for the link that they share.",
     crc_errors},
    {"icrc-errors", CheckKind::kPassive, Severity::kFail, "no packets damaged behind the link",
     "hw_counters/rx_icrc_encapsulated", "0 in the run",
     "A packet passed the checks of every link and was damaged all the same: a switch, a NIC or a "
     "middlebox changed the packet.",
     "Find what the affected paths share. Look for a switch with memory errors, and for devices "
     "that rewrite RoCE headers.",
     icrc_errors},
};

}  // namespace

std::span<const Check> bit_checks() { return kBitsRows; }

}  // namespace weft::fabric
