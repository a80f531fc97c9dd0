// The datagrams that this rank and one peer exchange, over any path that works: pings, and numbered
// notes. This class does not depend on the contents of notes, on lanes or on messages.
//
//   i, o   ping and its answer: this path works, and the peer polls
//   n, a   a note and its acknowledgement; one note at a time is repeated on all paths
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "transport/datagram_channel.h"
#include "transport/rails/note_queue.h"
#include "transport/rails/pings.h"

namespace weft {

class PeerTalk {
 public:
  // Receives the events that a datagram of the peer causes. Its functions may call say().
  class Listener {
   public:
    // A ping was answered. again: the peer counted as unreachable until now.
    virtual void on_answer(Rank rank, bool again) = 0;
    // A note has arrived. Each note is reported once, in the order of their numbers.
    virtual void on_note(Rank rank, std::string_view body) = 0;
    // The peer has acknowledged a note.
    virtual void on_told(Rank rank) = 0;

   protected:
    ~Listener() = default;
  };

  PeerTalk(DatagramChannel& paths, Rank rank, std::size_t rails)
      : paths_(paths), rank_(rank), rails_(static_cast<int>(rails)), pings_(rails) {}

  PeerPings& pings() { return pings_; }
  const PeerPings& pings() const { return pings_; }
  const NoteQueue& notes() const { return notes_; }

  void ping(std::int64_t now);
  // Queues a note and, if it is the first in the queue, sends it; move: it changes the lanes of
  // messages. Returns whether it was sent.
  bool say(std::string body, bool move, std::int64_t now);
  // Sends or repeats the first note.
  void send_note(std::int64_t now);
  // Reads a datagram of this peer.
  void read(const Datagram& datagram, std::int64_t now, Listener& listener);
  // Drops the peer's datagrams from now on. False: it did already.
  bool mute() { return !std::exchange(muted_, true); }

 private:
  void send_everywhere(const std::string& text);

  DatagramChannel& paths_;
  Rank rank_;
  int rails_;
  PeerPings pings_;
  NoteQueue notes_;
  bool muted_ = false;
};

}  // namespace weft
