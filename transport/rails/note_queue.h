// The numbered notes between this rank and one peer, in both directions, sent one at a time. A note
// is repeated on all paths until the peer acknowledges it. The queue sends nothing, and does not
// depend on the contents of notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace weft {

class NoteQueue {
 public:
  struct Note {
    std::uint32_t number;
    bool move;  // the note changes the lanes of messages
    std::string body;
  };

  // ---- to the peer
  // Returns true if the note is the first in the queue and must be sent now.
  bool add(std::string body, bool move) {
    moves_ += move;
    notes_.push_back({next_++, move, std::move(body)});
    return notes_.size() == 1;
  }
  bool empty() const { return notes_.empty(); }
  std::size_t size() const { return notes_.size(); }
  const Note& first() const { return notes_.front(); }
  int moves() const { return moves_; }  // among the notes
  // The first note was sent or repeated.
  void sent(std::int64_t now) { sent_at_ = now; }
  std::int64_t sent_at() const { return sent_at_; }
  // The peer has acknowledged this number; false: not that of the first note.
  bool acknowledged(std::uint32_t number) {
    if (notes_.empty() || notes_.front().number != number) return false;
    moves_ -= notes_.front().move;
    notes_.pop_front();
    return true;
  }

  // ---- from the peer
  // Returns true if this number is the next one: the caller must read the note.
  bool take(std::uint32_t number) {
    if (number != next_from_peer_) return false;
    ++next_from_peer_;
    return true;
  }
  // Whether the note has been taken and must be acknowledged.
  bool taken(std::uint32_t number) const {
    return static_cast<std::int32_t>(number - next_from_peer_) < 0;
  }

 private:
  std::deque<Note> notes_;
  int moves_ = 0;
  std::uint32_t next_ = 0, next_from_peer_ = 0;
  std::int64_t sent_at_ = 0;
};

}  // namespace weft
