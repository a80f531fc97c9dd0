// The rails of the messages between this rank and one peer, in both directions, and the messages
// that the peer left on other rails at its last choice. The class does not depend on which rails
// are up, nor on why and when either end chooses anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/rails/datagram_text.h"
#include "transport/rails/rail_table.h"

namespace weft {

class RailRoutes {
 public:
  using Tables = std::vector<RailTable>;  // by home

  // Both ends begin with the same tables.
  void begin(Tables tables) {
    out_ = tables;
    in_ = std::move(tables);
  }

  // ---- to the peer
  int out(std::size_t home, int bucket) const {
    return out_[home][static_cast<std::size_t>(bucket)];
  }
  const Tables& out() const { return out_; }
  void choose(Tables tables) { out_ = std::move(tables); }
  // Appends the tables, for the peer's read().
  void write(std::string& text) const {
    for (const RailTable& table : out_) put(text, table);
  }
  // Appends a message under way on another rail than the tables name.
  static void write_left(std::string& text, std::uint64_t tag, int rail) {
    put(text, tag);
    put(text, static_cast<std::uint8_t>(rail));
  }

  // ---- from the peer
  int in(std::size_t home, int bucket) const { return in_[home][static_cast<std::size_t>(bucket)]; }
  // Returns the rail on which the peer left the message with this tag, and forgets it; -1: none.
  int take_left(std::uint64_t tag) {
    if (left_.empty()) [[likely]]
      return -1;
    const auto found = left_.find(tag);
    if (found == left_.end()) return -1;
    const int rail = found->second;
    left_.erase(found);
    return rail;
  }
  // The message has arrived already.
  void arrived(std::uint64_t tag) { left_.erase(tag); }
  // Number of messages that read_left() has kept since the last read().
  std::size_t kept() const { return next_left_.size(); }
  // Reads messages that the peer left on other rails; they count from the next read() on.
  void read_left(std::string_view text, std::size_t rails) {
    std::uint64_t tag = 0;
    std::uint8_t rail = 0;
    while (get(text, tag) && get(text, rail))
      if (rail < rails) next_left_[tag] = rail;
  }
  // Reads the peer's tables, and more messages that it left. False: a table is invalid, and nothing
  // changes.
  bool read(std::string_view text, std::size_t rails) {
    Tables tables(in_.size());
    for (RailTable& table : tables) {
      if (!get(text, table)) return false;
      for (const std::uint8_t rail : table)
        if (rail >= rails) return false;
    }
    read_left(text, rails);
    in_ = std::move(tables);
    left_ = std::exchange(next_left_, {});
    return true;
  }

 private:
  Tables out_, in_;
  std::unordered_map<std::uint64_t, std::uint8_t> left_, next_left_;  // rail by tag
};

}  // namespace weft
