// Widths of counters and the difference between two readings. Reads no files.
#include "perf/validate/facts/counter.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

namespace weft::fabric {
namespace {

struct Width {
  std::string_view name;
  CounterKind kind;
};

constexpr Width kWidths[] = {
    // IBTA 1.6, 16.1.3.5, PortCounters.
    {"ib.VL15_dropped", {16, true}},
    {"ib.excessive_buffer_overrun_errors", {4, true}},
    {"ib.link_downed", {8, true}},
    {"ib.link_error_recovery", {8, true}},
    {"ib.local_link_integrity_errors", {4, true}},
    {"ib.port_rcv_constraint_errors", {8, true}},
    {"ib.port_rcv_data", {32, true}},
    {"ib.port_rcv_errors", {16, true}},
    {"ib.port_rcv_packets", {32, true}},
    {"ib.port_rcv_remote_physical_errors", {16, true}},
    {"ib.port_rcv_switch_relay_errors", {16, true}},
    {"ib.port_xmit_constraint_errors", {8, true}},
    {"ib.port_xmit_data", {32, true}},
    {"ib.port_xmit_discards", {16, true}},
    {"ib.port_xmit_packets", {32, true}},
    {"ib.port_xmit_wait", {32, true}},
    {"ib.symbol_error", {16, true}},
    // mlx5, QUERY_Q_COUNTER; the congestion counters (np_*, rp_*) have 64 bits.
    {"eth.rx_out_of_buffer", {32, false}},
    {"hw.duplicate_request", {32, false}},
    {"hw.implied_nak_seq_err", {32, false}},
    {"hw.local_ack_timeout_err", {32, false}},
    {"hw.out_of_buffer", {32, false}},
    {"hw.out_of_sequence", {32, false}},
    {"hw.packet_seq_err", {32, false}},
    {"hw.req_cqe_error", {32, false}},
    {"hw.req_cqe_flush_error", {32, false}},
    {"hw.req_remote_access_errors", {32, false}},
    {"hw.req_remote_invalid_request", {32, false}},
    {"hw.req_rnr_retries_exceeded", {32, false}},
    {"hw.req_transport_retries_exceeded", {32, false}},
    {"hw.resp_cqe_error", {32, false}},
    {"hw.resp_cqe_flush_error", {32, false}},
    {"hw.resp_local_length_error", {32, false}},
    {"hw.resp_remote_access_errors", {32, false}},
    {"hw.rnr_nak_retry_err", {32, false}},
    {"hw.roce_adp_retrans", {32, false}},
    {"hw.roce_adp_retrans_to", {32, false}},
    {"hw.roce_slow_restart", {32, false}},
    {"hw.roce_slow_restart_cnps", {32, false}},
    {"hw.roce_slow_restart_trans", {32, false}},
    {"hw.rx_atomic_requests", {32, false}},
    {"hw.rx_dct_connect", {32, false}},
    {"hw.rx_read_requests", {32, false}},
    {"hw.rx_write_requests", {32, false}},
};

std::uint64_t ceiling_of(int bits) {
  return bits >= 64 ? std::numeric_limits<std::uint64_t>::max() : (std::uint64_t{1} << bits) - 1;
}

}  // namespace

CounterKind kind_of_counter(const std::string& name) {
  const auto* row = std::ranges::find(kWidths, std::string_view(name), &Width::name);
  return row == std::end(kWidths) ? CounterKind{} : row->kind;
}

Change difference(const Reading& before, const Reading& after, CounterKind kind) {
  if (before.state != ReadingState::kValue || after.state != ReadingState::kValue) return {};
  // On some devices this counter is wider, which a value above the listed width proves.
  std::uint64_t ceiling = ceiling_of(kind.bits);
  if (before.value > ceiling || after.value > ceiling) ceiling = ceiling_of(64);
  const std::uint64_t moved = (after.value - before.value) & ceiling;
  if (kind.saturates && after.value == ceiling) return {ChangeState::kSaturated, moved};
  if (after.value >= before.value) return {ChangeState::kKnown, moved};
  if (!kind.saturates && moved <= ceiling / 2) return {ChangeState::kWrapped, moved};
  return {ChangeState::kReset, after.value};
}

}  // namespace weft::fabric
