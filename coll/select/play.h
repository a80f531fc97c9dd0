// Play: simulates one round of schedules on the links of a cost model. It computes when each
// message leaves and arrives, and how long ports and cores are busy, independent of algorithm and
// slicing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "coll/schedule/building_blocks.h"
#include "coll/select/cost.h"

namespace weft {

// A point in time, and the part of it that is latency.
struct Moment {
  double us = 0, alpha_us = 0;
  Moment plus(double bytes_us, double latency_us) const {
    return {us + bytes_us + latency_us, alpha_us + latency_us};
  }
};
inline Moment later(const Moment& a, const Moment& b) { return b.us > a.us ? b : a; }

// kOfList: a rank executes its steps in list order, as with sockets and too few cores. kAsEngine: a
// step begins when its data is ready, and messages have credits, as in the engine.
enum class Order : bool { kAsEngine, kOfList };

inline std::size_t as_index(int i) { return static_cast<std::size_t>(i); }

// The ports of the rails, and the port that each rank uses.
class Ports {
 public:
  Ports(const Shape& shape, const Layout& layout, const CostModel& model);
  int count() const { return static_cast<int>(users_.size()); }
  int of(Rank r) const { return port_of_[static_cast<std::size_t>(r)]; }
  int users(int port) const { return users_[static_cast<std::size_t>(port)]; }
  double us_per_byte(int port) const { return us_per_byte_[static_cast<std::size_t>(port)]; }
  int rail(Rank r) const { return of(r) % nrails_; }
  // The rail of a host's l-th rank if the shape does not specify it: the ranks of a host are
  // divided among its rails in contiguous blocks, as in Topology. If hosts have different numbers
  // of ranks, ranks with the same index are on the same rail.
  static int by_index(int l, int ranks, int rails, bool uniform) {
    return uniform ? static_cast<int>(static_cast<std::int64_t>(l) * rails / ranks) : l % rails;
  }
  bool crosses(Rank a, Rank b) const { return rail(a) != rail(b); }

 private:
  int nrails_;
  std::vector<int> port_of_, users_;
  std::vector<double> us_per_byte_;
};

// Returns the ratio of the busiest uplink's total load to its load from the simulated ranks,
// computed from the first rank of each host (uplinks.cc); 1 if uplinks are never a bottleneck.
double uplinks_by_played(const Algorithm& algorithm, const Shape& shape,
                         std::span<const Schedule> some, const CostModel& model);
// Increases the predicted time to at least the time of the busiest uplink.
void wait_for_uplinks(Prediction& p, const Algorithm& algorithm, const Shape& shape,
                      std::size_t bytes, const CostModel& model);

class Play {
 public:
  // `some`: as in predict(). `bytes`: bytes per round.
  Play(std::span<const Schedule> some, const Shape& shape, double bytes, const CostModel& model,
       Order order);
  // Simulates `rounds` rounds. A rank has up to `lanes` rounds in flight, as in the engine, and
  // copies for the given times when a round begins and when it ends.
  void run(int rounds = 1, int lanes = 1, double copy_in_us = 0, double copy_out_us = 0);

  // At least one task did not complete.
  bool stuck() const { return left_ > 0; }
  int steps() const { return static_cast<int>(tasks_.size()); }  // per round
  // End of the first round that completes.
  Moment end() const { return end_[0]; }
  // The time at which `round` + 1 rounds have completed.
  double end_us(int round) const { return end_[static_cast<std::size_t>(round)].us; }
  // Per round:
  double rail_us() const;  // time for which the busiest port, uplink or spine is busy
  double host_us() const;  // time for which the busiest rank, or the host's memory, is busy
  double work_us() const;  // all ranks' work on messages between hosts, also of ranks not simulated

 private:
  struct Port {
    Moment free;
    double busy_us = 0;
  };
  struct Task {
    int rank = 0;  // index into ranks_
    // Number of pending dependencies: tasks, a message, the begin of the round.
    int missing = 1;
    int arrives_at = -1;  // a send: the receive that its message completes (take_as_own())
    // A receive: number of consecutive receives from different ranks of other hosts.
    int fan_in = 1;
    bool near = false, reduces = false;
    bool reduced = false;  // the last receive of a reduction, which is a node of the engine's plan
    int after = 0, afters = 0;  // range in after_: the tasks that depend on this one
    double bytes = 0;
  };
  // A task of one round.
  struct Turn {
    int missing = 0;
    int held = -1;  // a receive: the send that waits until the receive's round begins
    Moment ready;
  };
  struct Member {
    const Schedule* schedule = nullptr;
    int first = 0;  // task of its first step
    int nodes = 0;  // nodes of the engine's plan: steps and reductions
    Moment cpu;     // the time at which the rank's core is free
    Port out, in;   // CostModel::host_ports: its own ports inside the host
    double busy_us = 0, bytes = 0, work_us = 0;
    int started = 0;        // lanes
    int next = 0;           // the next round that a free lane starts
    std::vector<int> left;  // by round: nodes that have not completed
    std::vector<bool> begun;
    // With Order::kOfList:
    int taken = 0, received = 0;
    std::vector<Moment> sent;  // times at which its messages begin to leave
  };
  enum class What : char { kBegins, kAtSpine, kArrives };
  struct Event {
    double us;
    int number;  // sequence number: events with the same time keep their order
    int turn;    // round * tasks + task
    What what;
    Moment at;
    bool operator>(const Event& o) const { return us != o.us ? us > o.us : number > o.number; }
  };

  const Step& step(int task) const {
    const Member& m = ranks_[static_cast<std::size_t>(tasks_[static_cast<std::size_t>(task)].rank)];
    return m.schedule->steps[static_cast<std::size_t>(task - m.first)];
  }
  void add_tasks(int rank, double bytes);
  void order_by_chunks(Member& member);
  void count_fan_in(const Member& member);
  void match_messages();
  void take_as_own();
  void take_as_own(const std::vector<int>& receives, const std::vector<int>& sends);
  void needs_credit(int send, int receive);
  void push(int turn, What what, const Moment& at);
  void begin(Member& member, int round, const Moment& at);
  void run_as_listed();
  bool take(Member& member, bool force);
  void met(int turn, const Moment& at);
  void send(int turn);
  void start_turn(int turn, const Moment& at);
  Moment through_spine(int task, const Moment& at);
  bool changes_leaf(int task) const;
  std::pair<int, int> uplink_of(Rank r) const;
  void under_way(int turn, const Moment& there);
  const LinkCost& link_of(int task) const;
  Moment through_in(int task, const Moment& at);
  void receive(int turn);
  void done(int turn, const Moment& at);
  void work(Member& member, int turn, double us);
  bool over_spine(Rank a, Rank b) const {
    return model_.spine.us_per_byte > 0 && ports_.crosses(a, b);
  }
  // Occupies the rank with a copy; returns the time at which it ends.
  Moment copy(Member& member, const Moment& at, double us);
  static void pass(Port& port, const Moment& from, double us);

  const CostModel& model_;
  const Order order_;
  Layout layout_;
  Ports ports_;
  std::vector<Member> ranks_;
  std::vector<Task> tasks_;
  std::vector<std::pair<int, int>> edges_;
  std::vector<int> after_;
  std::vector<bool> played_;
  std::vector<Port> out_, in_;
  std::vector<double> share_;                      // ranks per port, divided by simulated ones
  std::map<std::pair<int, int>, Port> spines_;     // by source and destination host
  double spine_share_ = 1;                         // ranks per host, divided by simulated ones
  std::vector<int> leaf_;                          // by host; empty: uplinks are never a bottleneck
  std::map<std::pair<int, int>, Port> up_, down_;  // uplinks, by leaf and rail
  std::vector<std::pair<int, int>> echoes_;        // sends, and further receives that they complete
  std::vector<int> unsent_;                        // receives without a known send
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Turn> turns_;
  int rounds_ = 1, lanes_ = 1;
  double copy_in_us_ = 0, copy_out_us_ = 0;
  int numbers_ = 0, left_ = 0;
  std::vector<Moment> end_;  // of the rounds
};

}  // namespace weft
