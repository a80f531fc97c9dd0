// Makes a connection when the first message to a peer asks for it, and ends the one used longest
// ago where all places are taken. The ends talk by letters (letters.h); no call waits for one.
//
// A connection to which a receive is posted at one end is not closed for a while: all messages of
// an all_to_all go over one connection that way, though a rank has fewer places than peers. After
// that only bytes in flight keep a connection open: a posted receive does not, nor a long message
// that waits for its CTS, which may come over a later connection. So every connection can be closed
// sooner or later, and no rank waits for a place for ever: an invitation holds a place, too, until
// it is answered or abandoned.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/job/mailbox.h"
#include "transport/verbs/connections/letters.h"
#include "transport/verbs/connections/places.h"
#include "transport/verbs/connections/queue_pairs.h"

namespace weft {

class VerbsConnections {
 public:
  using Link = VerbsConnection::Link;

  // most_places: of one rank; more are made only where peers do not answer for long. `where` names
  // this rank's port in logs.
  VerbsConnections(VerbsQueuePairs& pairs, std::unique_ptr<Mailbox> mail, Rank me,
                   std::string where, int most_places);

  // Registers the first places. Throws Error.
  void begin();
  // Counts a message that was sent or has arrived.
  void use(VerbsConnection& c) { c.used = ++uses_; }
  // Connects to the peer as soon as there is a place: a message waits.
  void request(VerbsConnection& c);
  // Reads letters, answers them, and makes and ends connections.
  void poll();
  void read_letters();
  // Whether poll() has work now; else a letter makes fd() readable, if it is not -1.
  bool busy() const { return mail_->waiting() || !requests_.empty(); }
  int fd() const { return mail_->fd(); }

  // The peer is connected: a message of it has arrived.
  void open(VerbsConnection& c);
  // The queue pairs have been ended, and the connection is not resumed.
  void closed(VerbsConnection& c) noexcept;
  // Ends the queue pairs half way and connects anew; the messages stay.
  void break_off(VerbsConnection& c) noexcept;
  void reconnect(VerbsConnection& c);

  // A connection that rails replace (Recovery): makes its queue pairs, and returns the invitation
  // for the peer; empty where there is no place now. Throws Error.
  std::string invite_by_rails(VerbsConnection& c);
  // Connects them by the peer's. Throws Error.
  void accept(VerbsConnection& c, std::string_view theirs);

 private:
  static constexpr int kPlacesAtOnce = 8;  // slots are registered for so many at a time

  void set(VerbsConnection& c, Link link);
  bool take_place(VerbsConnection& c);
  void make_room();
  void grow();
  bool abandon_one();
  void leave(VerbsConnection& c);
  void open_requested();
  void connect_to_invited(VerbsConnection& c, std::string_view theirs);
  void give_up(VerbsConnection& c, const std::exception& error, std::uint32_t their_number);
  void ask_to_close(VerbsConnection& c, VerbsLetter how);
  void send_close(VerbsConnection& c, VerbsLetter how);
  void finish_closing(VerbsConnection& c);

  // letters.cc
  void send(VerbsConnection& c, VerbsLetter what, std::uint32_t yours, std::string_view body = {});
  void send_abandon(VerbsConnection& c, std::uint32_t attempt);
  void repeat_letters();
  void on_letter(const Letter& letter);
  void on_invite(VerbsConnection& c, const VerbsLetterFront& front, std::string_view body);
  void on_close(VerbsConnection& c, const VerbsLetterFront& front, std::string_view body);
  void on_abandon(VerbsConnection& c, std::uint32_t number);
  void refuse(VerbsConnection& c, const char* what) noexcept;

  VerbsQueuePairs& pairs_;
  const std::unique_ptr<Mailbox> mail_;
  const Rank me_;
  const std::string where_;
  int most_places_;
  VerbsPlaces places_;
  std::deque<VerbsConnection*> requests_;  // connections that wait to be made
  int closing_ = 0;                        // connections that are kClosing
  int unsettled_ = 0;                      // connections that are neither kClosed nor kOpen
  int unsettled_polls_ = 0;
  std::uint64_t uses_ = 0;
  std::uint32_t attempts_ = 0;
};

}  // namespace weft
