// One end of a stream or ping-pong over RDMA verbs. Built with and without verbs: without them,
// make_verbs_pair() throws.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "perf/pair/pair_link.h"
#include "perf/validate/probes/flow_end.h"
#include "perf/validate/probes/meter.h"
#include "topo/base/clock.h"
#include "topo/base/thread.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kRdmaMessage = 64 << 10, kRdmaPing = 64;
constexpr double kRdmaTailSeconds = 2;
constexpr int kRdmaBatch = 16;
// Software devices use the ends' cores to move bytes. An end yields its core if a message takes
// longer than on a NIC, and sleeps if it takes far longer.
constexpr double kNicMessage_s = 20e-6, kSlowMessage_s = 400e-6, kLongestNap_s = 5e-3;
constexpr double kQueued_s = 0.05;  // send time of the posted messages

class VerbsEnd final : public FlowEnd {
 public:
  VerbsEnd(const EndOrder& order, Nic rail)
      : order_(order),
        latency_(order.probe == Probe::kLatency || order.victim),
        rail_(std::move(rail)),
        beside_(sysfs::cpus_beside("/sys", rail_.pci)) {
    sample_.flow = order.flow;
    sample_.sends = order.sends;
    options_.op = latency_ ? "send" : "write";
    options_.test = latency_ ? PairTest::kLatency : PairTest::kBandwidth;
    options_.qps = order.streams;
    if (order.label > 0) options_.flow_label = static_cast<std::uint32_t>(way_of(order.label, 0));
  }

  std::string offer() override {
    return guarded([&] {
      const RunsOn beside(beside_);  // first touch decides where memory is allocated
      link_ = make_verbs_pair(options_, rail_, latency_ ? kRdmaPing : kRdmaMessage);
      return link_->offer();
    });
  }

  void connect(const std::string& theirs) override {
    if (theirs.empty() && sample_.error.empty())
      sample_.error = "the other end could not open its device";
    guarded([&] {
      link_->connect(theirs);
      PairRole role;
      role.bytes = latency_ ? kRdmaPing : kRdmaMessage;
      role.latency = latency_;
      role.sends = order_.sends;
      role.receives = !order_.sends;
      link_->prepare(role);
      return std::string();
    });
  }

  EndSample run() override {
    const RunsOn beside(beside_);
    const Starvation starvation;
    guarded([&] {
      if (latency_)
        order_.sends ? ping() : echo();
      else if (order_.sends)
        stream();
      return std::string();
    });
    sample_.starved = starvation.share();
    return sample_;
  }

 private:
  template <typename Call>
  std::string guarded(Call&& call) {
    if (!sample_.error.empty()) return "";
    try {
      return call();
    } catch (const std::exception& e) {
      sample_.error = e.what();
      return "";
    }
  }

  // Posts writes until the time is over; completions at the sender are acknowledgements of the
  // receiver. If the queue does not drain in time, only completed messages count.
  void stream() {
    WindowMeter meter(order_.seconds);
    const double start = now_s(), until = start + order_.seconds;
    const double bytes_per_s = order_.pace_gbps * 1e9 / 8;
    std::uint64_t posted = 0, done = 0;
    bool ended = false;
    double now = start, looked = start, idle_s = 0;
    while (!ended || done < posted) {
      now = now_s();
      const double message_s = done > 0 ? (now - start) / static_cast<double>(done) : kQueued_s;
      const int room = std::max(kRdmaBatch, static_cast<int>(kQueued_s / message_s)) -
                       static_cast<int>(posted - done);
      if (now > until + kRdmaTailSeconds) {
        if (done == 0) sample_.error = "messages did not complete";
        break;
      }
      if (!ended) {
        const double due = bytes_per_s > 0 ? (now - start) * bytes_per_s / kRdmaMessage : 1e18;
        int n = 0;
        if (now >= until) {
          n = link_->post_last();
          ended = n > 0;
        } else if (static_cast<double>(posted) < due) {
          n = link_->post(std::clamp(room, 0, kRdmaBatch));
        }
        posted += static_cast<std::uint64_t>(n);
      }
      const PairProgress progress = link_->poll();
      done += static_cast<std::uint64_t>(progress.sent);
      // The device may have been idle since the previous poll.
      if (!ended && progress.sent > 0 && done == posted) idle_s += now - looked;
      looked = now;
      if (progress.sent == 0 && done > 0 && message_s > kSlowMessage_s)
        std::this_thread::sleep_for(
            std::chrono::duration<double>(std::min(message_s / 4, kLongestNap_s)));
      meter.add_message(now, static_cast<std::uint64_t>(progress.sent) * kRdmaMessage);
    }
    sample_.bytes = meter.bytes();
    sample_.seconds = meter.seconds();
    if (sample_.seconds > 0) sample_.sender_idle = std::clamp(idle_s / sample_.seconds, 0.0, 1.0);
    sample_.window_gbps = meter.windows();
    sample_.window_s = meter.window_s();
    if (order_.streams == 1 && order_.label == 0) return;
    std::uint64_t left = sample_.bytes;  // messages that completed after the end do not count
    for (const PairLink::Queue& queue : link_->queues()) {
      const std::uint64_t bytes = std::min(left, queue.sent * kRdmaMessage);
      sample_.streams.push_back({queue.port, bytes, {}, {}});
      left -= bytes;
    }
  }

  // Polls, then yields, then sleeps: during a slow answer, other threads may need the core.
  bool await(std::uint64_t turn, double until) {
    const double start = now_s();
    while (!link_->arrived(turn)) {
      const double now = now_s();
      if (now > until) return false;
      if (now - start > kSlowMessage_s)
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      else if (now - start > kNicMessage_s)
        std::this_thread::yield();
    }
    return true;
  }

  void ping() {
    PingTimes times(order_.seconds, !order_.victim);
    for (std::uint64_t turn = 1; times.more(); ++turn) {
      const double began = order_.victim ? times.next() : now_s();
      link_->ping(turn);
      if (!await(turn, times.latest() + kRdmaTailSeconds)) {
        sample_.error = "no answer to a ping";
        break;
      }
      times.add(now_s() - began);
    }
    sample_.seconds = times.seconds();
    sample_.latency = times.summary();
  }

  // Answers until no ping arrives for a while: the sender sends no end mark.
  void echo() {
    for (std::uint64_t turn = 1; await(turn, now_s() + std::max(order_.seconds, 0.2)); ++turn) {
      link_->ping(turn);
      sample_.bytes += kRdmaPing;
    }
    if (sample_.bytes == 0) sample_.error = "no ping arrived";
  }

  const EndOrder order_;
  const bool latency_;
  const Nic rail_;
  const std::vector<int> beside_;
  PairOptions options_;
  EndSample sample_;
  std::unique_ptr<PairLink> link_;
};

}  // namespace

std::unique_ptr<FlowEnd> make_verbs_end(const EndOrder& order, const Nic& rail) {
  return std::make_unique<VerbsEnd>(order, rail);
}

}  // namespace weft::fabric
