// Formats a snapshot of the counters for Prometheus. This file is independent of what updates the
// counters, and of where the text goes.
#include "coll/api/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace weft {
namespace {

class Text {
 public:
  void family(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP weft_{0} {2}\n# TYPE weft_{0} {1}\n", name,
                   type, help);
  }
  template <class T>
  void sample(const char* name, const std::string& labels, T value) {
    fmt::format_to(std::back_inserter(text_), "weft_{}{{{}}} {}\n", name, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string to_prometheus(const Metrics& m) {
  Text text;
  const std::string rank = fmt::format("rank=\"{}\"", m.rank);
  const auto calls = [&](const char* name, const char* help, auto value) {
    text.family(name, "counter", help);
    for (const Metrics::Calls& c : m.calls)
      text.sample(name, fmt::format("{},collective=\"{}\"", rank, weft::name(c.collective)),
                  value(c));
  };
  calls("calls_total", "Operations begun", [](const auto& c) { return c.calls; });
  calls("failures_total", "Operations that ended with an error",
        [](const auto& c) { return c.failures; });
  calls("call_bytes_total", "Count times element size of all calls",
        [](const auto& c) { return c.bytes; });

  const auto traffic = [&](const char* name, const char* help, auto value) {
    text.family(name, "counter", help);
    for (const Metrics::Traffic& t : m.traffic)
      text.sample(name, fmt::format("{},peer=\"{}\",link=\"{}\"", rank, t.peer, t.link), value(t));
  };
  traffic("sent_bytes_total", "Bytes of messages sent", [](const auto& t) { return t.bytes_sent; });
  traffic("received_bytes_total", "Bytes of messages received",
          [](const auto& t) { return t.bytes_received; });
  traffic("sent_messages_total", "Messages sent", [](const auto& t) { return t.messages_sent; });
  traffic("received_messages_total", "Messages received",
          [](const auto& t) { return t.messages_received; });

  text.family("rail_sent_bytes_total", "counter", "Bytes of messages that went over the rail");
  for (const Metrics::Rail& r : m.rails)
    text.sample("rail_sent_bytes_total", fmt::format("{},link=\"{}\"", rank, r.link), r.bytes_sent);

  const auto single = [&](const char* name, const char* help, auto value) {
    text.family(name, "counter", help);
    text.sample(name, rank, value);
  };
  single("stalls_total", "Times that nothing moved for 5 ms", m.stalls);
  single("stalled_seconds_total", "Time in stalls", m.stalled_s);
  single("naps_total", "Times that a waiting rank went to sleep", m.naps);
  single("retries_total", "Messages sent once more", m.retries);
  single("rails_taken_out_total", "Lanes with a peer that failed", m.rails_taken_out);
  single("rails_taken_back_total", "Lanes with a peer that came back", m.rails_taken_back);
  single("replayed_messages_total", "Messages that went over another rail", m.replayed);
  single("replayed_bytes_total", "Bytes that went over another rail", m.replayed_bytes);

  const auto picks = [&](const char* name, const char* type, const char* help, auto value) {
    text.family(name, type, help);
    for (const Metrics::Pick& p : m.picks)
      text.sample(
          name,
          fmt::format("{},collective=\"{}\",bytes=\"{}\",ranks=\"{}\",algorithm=\"{}\","
                      "runner_up=\"{}\"",
                      rank, weft::name(p.collective), p.bytes, p.ranks, p.algorithm, p.runner_up),
          value(p));
  };
  picks("pick_predicted_us", "gauge", "Predicted time of the algorithm picked",
        [](const auto& p) { return p.predicted_us; });
  picks("pick_runner_up_us", "gauge", "Predicted time of the next best algorithm",
        [](const auto& p) { return p.runner_up_us; });
  picks("pick_measured_us", "gauge", "Mean time of the calls that were timed",
        [](const auto& p) { return p.mean_us; });
  picks("pick_measured_min_us", "gauge", "Least time of the calls that were timed",
        [](const auto& p) { return p.min_us; });
  picks("pick_measured_calls_total", "counter", "Calls that were timed",
        [](const auto& p) { return p.measured; });
  return text.take();
}

}  // namespace weft
