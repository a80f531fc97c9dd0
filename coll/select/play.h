// Plays one round of schedules through on the links of a cost model: when each message leaves and
// arrives, and how long ports and cores are busy. Knows no algorithm and no engine's rounds.
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

// A point in time, and how much of the way to it was latency.
struct Moment {
  double us = 0, alpha_us = 0;
  Moment plus(double bytes_us, double latency_us) const {
    return {us + bytes_us + latency_us, alpha_us + latency_us};
  }
};
inline Moment later(const Moment& a, const Moment& b) { return b.us > a.us ? b : a; }

// Whether a rank takes its steps one after the other, as cores that are short do with sockets.
// Otherwise a step begins when its data is there, and messages have credits, as in the engine.
enum class Order : bool { kAsEngine, kOfList };

inline std::size_t as_index(int i) { return static_cast<std::size_t>(i); }

// Ports of rails, and which rank uses which.
class Ports {
 public:
  Ports(const Shape& shape, const Layout& layout, const CostModel& model);
  int count() const { return static_cast<int>(users_.size()); }
  int of(Rank r) const { return port_of_[static_cast<std::size_t>(r)]; }
  int users(int port) const { return users_[static_cast<std::size_t>(port)]; }
  double us_per_byte(int port) const { return us_per_byte_[static_cast<std::size_t>(port)]; }
  int rail(Rank r) const { return of(r) % nrails_; }
  // The rail of the l-th of a host's ranks, where the shape does not say: a host's ranks share its
  // rails out in blocks, as Topology has it. Where hosts have different numbers of ranks, ranks of
  // one index are on one rail.
  static int by_index(int l, int ranks, int rails, bool uniform) {
    return uniform ? static_cast<int>(static_cast<std::int64_t>(l) * rails / ranks) : l % rails;
  }
  bool crosses(Rank a, Rank b) const { return rail(a) != rail(b); }

 private:
  int nrails_;
  std::vector<int> port_of_, users_;
  std::vector<double> us_per_byte_;
};

// Uplinks of leaves, by the first rank of each host (uplinks.cc). How many times as much the
// busiest carries as it does of the ranks that are played; 1 where none is short.
double uplinks_by_played(const Algorithm& algorithm, const Shape& shape,
                         std::span<const Schedule> some, const CostModel& model);
// No job takes less than its busiest uplink.
void wait_for_uplinks(Prediction& p, const Algorithm& algorithm, const Shape& shape,
                      std::size_t bytes, const CostModel& model);

class Play {
 public:
  // `some`: as for predict(). `bytes`: of a round.
  Play(std::span<const Schedule> some, const Shape& shape, double bytes, const CostModel& model,
       Order order);
  // Plays so many rounds, of which a rank has up to `lanes` in flight, as the engine has them.
  void run(int rounds = 1, int lanes = 1);

  bool stuck() const { return left_ > 0; }                       // something was never done
  int steps() const { return static_cast<int>(tasks_.size()); }  // of a round
  Moment end() const { return end_[0]; }                         // of the first round that is done
  // When so many rounds and one more are done.
  double end_us(int round) const { return end_[static_cast<std::size_t>(round)].us; }
  // Of a round:
  double rail_us() const;  // how long the busiest port, uplink or spine is busy
  double host_us() const;  // how long the busiest rank, or the host's memory, is
  double work_us() const;  // all ranks' work on messages between hosts, also of ranks not played

 private:
  struct Port {
    Moment free;
    double busy_us = 0;
  };
  struct Task {
    int rank = 0;         // index into ranks_
    int missing = 1;      // tasks, a message, and the round's begin, that it waits for
    int arrives_at = -1;  // a send: the receive that takes its message, or one for its own peer's
    int fan_in = 1;       // a receive: how many in a row come from different other hosts' ranks
    bool near = false, reduces = false;
    bool reduced = false;  // the last receive of a reduction, which is a node of the engine's plan
    int after = 0, afters = 0;  // in after_: the tasks that wait for it
    double bytes = 0;
  };
  // A task in a round.
  struct Turn {
    int missing = 0;
    int held = -1;  // a receive: the send that waits for its round to begin
    Moment ready;
  };
  struct Member {
    const Schedule* schedule = nullptr;
    int first = 0;  // task of its first step
    int nodes = 0;  // of the engine's plan: steps and reductions
    Moment cpu;     // when the rank is free
    Port out, in;   // CostModel::host_ports: its own ports inside the host
    double busy_us = 0, bytes = 0, work_us = 0;
    int started = 0;        // lanes
    int next = 0;           // round that the next free lane takes
    std::vector<int> left;  // by round: nodes that are not done
    std::vector<bool> begun;
    // In the order of the list:
    int taken = 0, received = 0;
    std::vector<Moment> sent;  // when its messages begin to leave
  };
  enum class What : char { kBegins, kAtSpine, kArrives };
  struct Event {
    double us;
    int number;  // events of one moment keep their order
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
  void set_out(int turn, const Moment& at);
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
  std::vector<double> share_;                      // ranks on a port for each one that is played
  std::map<std::pair<int, int>, Port> spines_;     // by host of departure and of arrival
  double spine_share_ = 1;                         // ranks of a host for each one that is played
  std::vector<int> leaf_;                          // by host, where uplinks of leaves may be short
  std::map<std::pair<int, int>, Port> up_, down_;  // uplinks, by leaf and rail
  std::vector<std::pair<int, int>> echoes_;  // sends, and further receives that they arrive at
  std::vector<int> unsent_;                  // receives whose senders never send, as far as known
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Turn> turns_;
  int rounds_ = 1, lanes_ = 1;
  int numbers_ = 0, left_ = 0;
  std::vector<Moment> end_;  // of the rounds
};

}  // namespace weft
