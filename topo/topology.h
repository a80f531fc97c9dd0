// The placement of a job's ranks: hosts, high-speed domains, rails.
//
// A Topology is independent of transports and the same on every rank of a job: each rank describes
// itself in a Place, the bootstrap gathers the places, and Topology assigns hosts and rails.
#pragma once

#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {

// One network interface or RDMA device that may serve as a rail of this host.
struct Nic {
  std::string name;      // "eth0", "mlx5_0"
  bool rdma = false;     // a verbs device
  bool no_rc = false;    // a verbs device without reliable connections (EFA, usNIC)
  std::string netdev;    // the device's network interface (a plain interface: its own name)
  std::string pci;       // "0000:3b:00.0", empty for a virtual device
  int numa_node = -1;    // -1 if unknown
  double rate_gbps = 0;  // link rate in Gb/s, 0 if unknown
  std::string address;   // an IPv4/IPv6 address of netdev, empty if it has none
  std::string ipv6;      // an IPv6 address in addition to an IPv4 `address`, for peers without IPv4
  bool up = false;
  std::string state;  // why a verbs device is not up: "DOWN, Disabled"
  std::string aside;  // why the device is not a rail: "shares the cable of eth0"
  int from_gpu = -1;  // pci_distance() to the rank's GPU, in a Place; -1: unknown

  // Not sent to other hosts:
  bool closed = false;   // a verbs device that this process cannot open
  bool link = false;     // the link is physically up, even if the port is not active
  std::string kind;      // the port's hardware: link layer, card, lanes
  double pcie_gbps = 0;  // bandwidth of the device's slot, 0 if unknown
  std::string cable;     // equal for devices that share a cable
  // 0: a NIC or an upper interface of a NIC; 1: a virtual cable; 2: a bridge of virtual cables
  int removed = 0;
};

// A rank's description of itself, sent to the other ranks during the bootstrap.
struct Place {
  std::string host;        // host identity; equal strings mean the same (possibly emulated) host
  std::string leaf;        // the leaf switch of its rails; empty: unknown
  std::string machine;     // "kernel:process ids:user"; two ranks with equal `machine` can map
                           // each other's memory, also when their `host` differs
  std::string no_rdma;     // why this process cannot open a verbs device of its host: "mlx5_0: ..."
  std::string no_verbs;    // why libibverbs cannot be loaded; empty: loaded or not needed
  std::string no_ucx;      // why UCX cannot be loaded; empty: loaded or not needed
  std::vector<Nic> rails;  // rail r of this host is rails[r]; the same order on every host
  std::vector<Nic> others;  // devices with a cable that are not rails of this host
  std::string gpu;          // PCI address of this rank's GPU; empty: not assigned
  int numa_node = -1;       // NUMA node of the cores that this process may use
};

// Returns the JSON text of a place, for the bootstrap.
std::string encode(const Place& place);
Place decode_place(const std::string& text);  // throws Error on malformed text

class Topology {
 public:
  // places[r] describes rank r. Rank r of a host with L local ranks and R rails uses rail `local
  // index * R / L` unless another rail is nearer: in the PCI tree to the rank's GPU if known,
  // otherwise by NUMA node to its cores. Hosts with the same number of ranks assign rails alike, so
  // ranks with the same local index share a rail. place(r).rails has the same length on all hosts:
  // first the rails usable on all hosts, in PCI order, then the rails with a hole on some host (a
  // port that is down, missing, or without an address). All addresses are of one family, which all
  // hosts have. Callers use place(r), not the place that r sent; messages to users number rails by
  // slot(). Throws Error if there are no ranks, or if ranks of one host list different rails.
  explicit Topology(std::vector<Place> places);

  int nranks() const { return static_cast<int>(places_.size()); }
  int nhosts() const { return static_cast<int>(hosts_.size()); }
  int nrails() const { return nrails_; }         // rails that all hosts can use, >= 1
  int host(Rank r) const { return host_[r]; }    // index of r's host
  int local(Rank r) const { return local_[r]; }  // index of r among its host's ranks
  int rail(Rank r) const { return rail_[r]; }    // the rail that r uses
  const std::vector<Rank>& ranks_of(int host) const { return hosts_[host]; }  // ascending
  // Returns the leaf number of each host; empty if a host's leaf is unknown.
  std::vector<int> leaves() const;
  const std::string& host_name(int host) const { return places_[hosts_[host][0]].host; }
  const Place& place(Rank r) const { return places_[r]; }
  // Returns the user-visible number of place(r).rails[rail]: its index in PCI order, including
  // holes. `rail` is below place(r).rails.size(), or 0.
  int slot(int rail) const { return slots_.empty() ? 0 : slots_[rail]; }
  std::vector<Nic> rails_by_slot(Rank r) const;  // place(r).rails, indexed by slot()
  bool same_host(Rank a, Rank b) const { return host_[a] == host_[b]; }
  // Returns whether both ranks run on one kernel, even in two containers, and compete for its
  // cores.
  bool same_kernel(Rank a, Rank b) const;
  // Returns whether every host has the same number of ranks.
  bool uniform() const;

 private:
  std::vector<Place> places_;
  std::vector<std::vector<Rank>> hosts_;
  std::vector<int> host_, local_, rail_, slots_;
  int nrails_ = 1;
};

}  // namespace weft
