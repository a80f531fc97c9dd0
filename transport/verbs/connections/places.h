// The places for connections: their owners, and how long this rank has waited for a free one. A
// place is the slots of one connection. This file is independent of how places are freed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "transport/verbs/connections/queue_pairs.h"

namespace weft {

class VerbsPlaces {
 public:
  using Clock = std::chrono::steady_clock;

  int size() const { return static_cast<int>(owners_.size()); }
  void add(int places) { owners_.resize(owners_.size() + static_cast<std::size_t>(places)); }
  // Assigns a free place to the connection; false: there is none.
  bool take(VerbsConnection& c) {
    const auto free = std::ranges::find(owners_, nullptr);
    if (free == owners_.end()) return false;
    *free = &c;
    c.place = static_cast<int>(free - owners_.begin());
    for_place_.begin();
    for_answer_.begin();
    return true;
  }
  void free(VerbsConnection& c) noexcept {
    if (c.place >= 0) owners_[static_cast<std::size_t>(c.place)] = nullptr;
    c.place = -1;
  }
  // By place; nullptr: free. The caller may free places while it reads them.
  std::span<VerbsConnection* const> owners() const { return owners_; }

  // Counts one search for a free place. Returns whether none has been free for long, and whether
  // the peer that was last asked to close has had time to answer.
  struct Waited {
    bool for_place, for_answer;
  };
  Waited look(Clock::time_point now) { return {for_place_.over(now), for_answer_.over(now)}; }
  void begin_for_place() { for_place_.begin(); }
  void begin_for_answer() { for_answer_.begin(); }

 private:
  // A wait ends after a number of searches, or after a time if searches are rare because other
  // processes use the core.
  struct Patience {
    const int most_looks;
    const Clock::duration most_time;
    int looks = 0;
    Clock::time_point since{};
    void begin() { looks = 0; }
    bool over(Clock::time_point now) {
      if (looks++ == 0) since = now;
      return looks > most_looks || now - since > most_time;
    }
  };
  std::vector<VerbsConnection*> owners_;
  Patience for_place_{16 << 10, std::chrono::milliseconds(200)};
  Patience for_answer_{2048, std::chrono::milliseconds(10)};
};

}  // namespace weft
