// Statistics of the pings to one peer: on which paths (rails) it answers, if at all. The class
// sends nothing, and does not depend on lanes or a clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

class PeerPings {
 public:
  static constexpr int kMostUnanswered = 10;  // pings until datagrams count as blocked

  explicit PeerPings(std::size_t rails) : paths_(rails) {}

  // A ping was sent on every path.
  void sent(std::int64_t now) {
    last_ = now;
    ++silent_pings_;
    for (Path& path : paths_)
      if (path.asked_since == 0) path.asked_since = now;
  }
  std::int64_t last() const { return last_; }
  // A message of the peer has arrived: it polls.
  void peer_polls() { peer_polled_ = true; }
  // Counts a ping that a polling peer has not answered, at most one per `every` us: datagrams do
  // not reach a peer that never answers. Returns their number, or 0 if this ping does not count.
  int count_unanswered(std::int64_t now, std::int64_t every) {
    if (reached_ || !peer_polled_ || now - counted_ < every) return 0;
    counted_ = now;
    peer_polled_ = false;
    return ++unanswered_;
  }
  // An answer to the ping of time `sent` has arrived on path `rail`. Returns whether the peer
  // counted as unreachable until now.
  bool answered(std::size_t rail, std::int64_t sent, std::int64_t now) {
    for (std::size_t r = 0; r < paths_.size(); ++r) {
      Path& path = paths_[r];
      if (r == rail || path.asked_since == 0 || sent < path.asked_since) continue;
      if (path.missed++ == 0) path.missed_since = now;
    }
    paths_[rail] = {.streak = paths_[rail].streak + 1};
    silent_pings_ = 0;
    return !std::exchange(reached_, true) && unanswered_ >= kMostUnanswered;
  }
  bool reached() const { return reached_; }  // the peer has answered at least once

  // Forgets unanswered pings of all paths, or of one.
  void forget() {
    std::ranges::fill(paths_, Path{});
    silent_pings_ = 0;
  }
  void forget(std::size_t rail) { paths_[rail] = {}; }

  // Factors of the ping interval: larger for a peer that answers no pings.
  std::int64_t patience() const { return 1 + std::min(silent_pings_ / 4, 9); }
  std::int64_t first_patience() const { return 1 + std::min(unanswered_, 9); }

  // Whether this path is dead and not only the peer late: the peer has answered several times on
  // other paths, the first time long ago.
  bool silent(std::size_t rail, std::int64_t now, std::int64_t dead_us) const {
    const Path& path = paths_[rail];
    return path.asked_since != 0 && now - path.asked_since >= dead_us && path.missed >= kMissed &&
           now - path.missed_since >= dead_us / 2;
  }
  std::int64_t asked_since(std::size_t rail) const { return paths_[rail].asked_since; }
  int streak(std::size_t rail) const { return paths_[rail].streak; }  // answers in a row

 private:
  static constexpr int kMissed = 3;  // answers on other paths until this one counts as dead

  struct Path {
    std::int64_t asked_since = 0;  // when the oldest unanswered ping was sent; 0: there is none
    int streak = 0;
    // Pings since then that were answered on other paths, and the time of the first such answer.
    int missed = 0;
    std::int64_t missed_since = 0;
  };
  std::vector<Path> paths_;
  std::int64_t last_ = 0;
  int silent_pings_ = 0;  // since the peer's last answer
  bool reached_ = false;
  bool peer_polled_ = false;  // a message came from the peer since the last ping that counted
  int unanswered_ = 0;        // pings that count, and when the last one was sent
  std::int64_t counted_ = 0;
};

}  // namespace weft
