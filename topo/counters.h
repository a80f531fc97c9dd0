// Counters as evidence: the kernel's counters of a rail's port, before and after an operation.
//
//   const CounterSnapshot before = read_counters(rail);
//   ...                                                 // the operation
//   evidence(1, "h2", signs_of_trouble(difference(before, read_counters(rail))));
//   // "rail 1 host h2: out_of_seq_request +299, rnr_nak_retry_err +2"
//
// Reads and compares counters, independent of the operations.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topo/topology.h"

namespace weft {

// Counter values by name. A port's counters have the kernel's names ("out_of_seq_request",
// "port_xmit_wait"); names of interface counters start with "net." ("net.rx_dropped"), of TCP
// counters with "tcp." ("tcp.retransmits").
using CounterSnapshot = std::map<std::string, std::int64_t>;

// Reads the counters of a rail. For RDMA: `counters` and `hw_counters` of port `port` (0: the first
// active port, or the first port if none is active) and `hw_counters` of the device. For a plain
// interface: the TCP retransmissions of this network namespace, from `proc_root`. For both: the
// statistics of the interface. Counters that cannot be read are omitted.
CounterSnapshot read_counters(const Nic& rail, int port = 0, const std::string& sysfs_root = "/sys",
                              const std::string& proc_root = "/proc");

// Reads tcp.retransmits, tcp.lost, tcp.reordering and tcp.rtt_us of one connection from TCP_INFO;
// returns an empty map if `socket` is not a TCP connection.
CounterSnapshot read_tcp_counters(int socket);
// Sums tcp.retransmits over this process's open TCP connections with local address `address`, and
// returns their number in tcp.connections. Closed connections are not included.
CounterSnapshot read_connections(const std::string& address);

struct CounterDelta {
  std::string name;
  std::int64_t change = 0;
};

// Returns the counters that changed, by name. Counters in only one snapshot are omitted; a counter
// that decreased was reset, and its change is its value in `after`.
std::vector<CounterDelta> difference(const CounterSnapshot& before, const CounterSnapshot& after);

// Returns the deltas of counters that remain constant on a healthy fabric: errors, retries, drops,
// reordered packets, congestion marks. Matches words in the counters' names, so it also covers new
// counters.
std::vector<CounterDelta> signs_of_trouble(const std::vector<CounterDelta>& deltas);

// "out_of_seq_request +299, rnr_nak_retry_err +2"; empty for no deltas.
std::string to_string(const std::vector<CounterDelta>& deltas);
// "rail 1 host h2: out_of_seq_request +299"; empty for no deltas.
std::string evidence(int rail, const std::string& host, const std::vector<CounterDelta>& deltas);

}  // namespace weft
