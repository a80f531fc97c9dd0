// The simulated fabric for ranks that have a port on every rail of their host. Each rank has a
// DatagramChannel in virtual time, and for each rail a transport that supports reconnection.
//
// Rank p on rail r is rank p * rails + r of the fabric. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/datagram_channel.h"
#include "transport/sim/sim.h"

namespace weft {

class SimRails {
 public:
  // `options` describes the ranks and their hosts; each rank is represented by `rails` ranks of the
  // fabric.
  SimRails(SimFabricOptions options, int rails);
  SimRails(const SimRails&) = delete;
  SimRails& operator=(const SimRails&) = delete;

  SimFabric& fabric() { return fabric_; }
  int rails() const { return rails_; }
  Rank rank_of(Rank of_fabric) const { return of_fabric / rails_; }
  bool link_up(Rank rank, int rail) const { return fabric_.link_up(host_[at(rank)], rail); }

  // The results of transport() and channel() must not outlive this object.
  std::unique_ptr<Transport> transport(Rank rank, int rail);
  std::unique_ptr<DatagramChannel> paths(Rank rank);

  // Drops `per_mille` of the datagrams although the links are up.
  void set_datagram_loss(int per_mille) { loss_ = per_mille; }
  // Delays the datagrams of one rail by `us`.
  void set_datagram_delay(int rail, double us) { delay_us_[at(rail)] = us; }

 private:
  friend class SimRailTransport;
  friend class SimPaths;
  struct Flying {
    double at_us;
    Datagram datagram;
  };
  static std::size_t at(Rank r) { return static_cast<std::size_t>(r); }

  int rails_;
  std::vector<int> host_;
  double latency_us_;
  SimFabric fabric_;
  std::vector<std::deque<Flying>> flying_;  // datagrams in flight, by rank
  std::vector<double> delay_us_;            // delay of datagrams, by rail
  int loss_ = 0;
  std::uint64_t random_ = 1;
};

}  // namespace weft
