// Counters as evidence: what the kernel counted at a rail's port, before and after something.
//
//   const CounterSnapshot before = read_counters(rail);
//   ...                                                 // the operation
//   evidence(1, "h2", signs_of_trouble(difference(before, read_counters(rail))));
//   // "rail 1 host h2: out_of_seq_request +299, rnr_nak_retry_err +2"
//
// Reads files and compares numbers; knows nothing of operations.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topo/topology.h"

namespace weft {

// By name. A port's own counters go by the kernel's name ("out_of_seq_request",
// "port_xmit_wait"), those of the network interface behind it begin with "net." ("net.rx_dropped"),
// those of the host's TCP with "tcp." ("tcp.retransmits").
using CounterSnapshot = std::map<std::string, std::int64_t>;

// Of an RDMA port: `counters` and `hw_counters` of port `port` (0: the first that is active, else
// the first), of the port and, where a driver keeps them there, of the device. Of every rail: the
// statistics of its interface. Of a plain interface: also the TCP retransmissions of this network
// namespace, from `proc_root`. What cannot be read is left out.
CounterSnapshot read_counters(const Nic& rail, int port = 0, const std::string& sysfs_root = "/sys",
                              const std::string& proc_root = "/proc");

// Of one TCP connection, from TCP_INFO: tcp.retransmits, tcp.lost, tcp.reordering, tcp.rtt_us.
CounterSnapshot read_tcp_counters(int socket);
// Of all TCP connections of this process from that address of its own, whoever opened them:
// tcp.retransmits; and how many they are: tcp.connections. What a connection has counted goes with
// it.
CounterSnapshot read_connections(const std::string& address);

struct CounterDelta {
  std::string name;
  std::int64_t change = 0;
};

// What changed, by name. A counter that is in one snapshot only is left out, and one that fell was
// set back meanwhile: then what it has now counts.
std::vector<CounterDelta> difference(const CounterSnapshot& before, const CounterSnapshot& after);

// Those that do not move while all is well: errors, retries, drops, packets out of order, marks of
// congestion. A counter that this version does not know counts by the words in its name.
std::vector<CounterDelta> signs_of_trouble(const std::vector<CounterDelta>& deltas);

// "out_of_seq_request +299, rnr_nak_retry_err +2"; empty for none.
std::string to_string(const std::vector<CounterDelta>& deltas);
// "rail 1 host h2: out_of_seq_request +299"; empty for none.
std::string evidence(int rail, const std::string& host, const std::vector<CounterDelta>& deltas);

}  // namespace weft
