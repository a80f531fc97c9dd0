// Counters as evidence: what the kernel counted at a rail's port, before and after something.
//
//   const CounterSnapshot before = read_counters(rail);
//   ...                                                 // the operation
//   evidence(1, "h2", signs_of_trouble(difference(before, read_counters(rail))));
//   // "rail 1 host h2: out_of_seq_request +299, rnr_nak_retry_err +2"
//
// This file reads counters and compares them; it knows nothing of operations.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topo/topology.h"

namespace weft {

// Counter values by name. A port's counters have the kernel's names ("out_of_seq_request",
// "port_xmit_wait"); the names of the interface's counters begin with "net." ("net.rx_dropped"),
// the names of TCP counters with "tcp." ("tcp.retransmits").
using CounterSnapshot = std::map<std::string, std::int64_t>;

// Reads the counters of a rail. An RDMA rail gives `counters` and `hw_counters` of port `port` (0:
// the first active port, else the first) and `hw_counters` of the device; a plain interface gives
// the TCP retransmissions of this network namespace, from `proc_root`; every rail gives the
// statistics of its interface. A counter that cannot be read is left out.
CounterSnapshot read_counters(const Nic& rail, int port = 0, const std::string& sysfs_root = "/sys",
                              const std::string& proc_root = "/proc");

// Reads tcp.retransmits, tcp.lost, tcp.reordering and tcp.rtt_us of one connection from TCP_INFO;
// returns an empty map when `socket` is no TCP connection.
CounterSnapshot read_tcp_counters(int socket);
// Sums tcp.retransmits over this process's open TCP connections whose own address is `address`,
// and counts the connections in tcp.connections. A connection that closes takes its count away.
CounterSnapshot read_connections(const std::string& address);

struct CounterDelta {
  std::string name;
  std::int64_t change = 0;
};

// Returns the counters that changed, by name. A counter that is in one snapshot only is left out; a
// counter that fell was reset in between, and its change is its value in `after`.
std::vector<CounterDelta> difference(const CounterSnapshot& before, const CounterSnapshot& after);

// Returns the deltas of counters that stand still while all is well: errors, retries, drops,
// reordered packets, congestion marks. The words in a name decide, so new counters work too.
std::vector<CounterDelta> signs_of_trouble(const std::vector<CounterDelta>& deltas);

// "out_of_seq_request +299, rnr_nak_retry_err +2"; empty for no deltas.
std::string to_string(const std::vector<CounterDelta>& deltas);
// "rail 1 host h2: out_of_seq_request +299"; empty for no deltas.
std::string evidence(int rail, const std::string& host, const std::vector<CounterDelta>& deltas);

}  // namespace weft
