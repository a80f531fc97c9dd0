// Makes a connection for the first message to a peer, and ends the least recently used one if all
// places are taken. The ends exchange letters (letters.h); no call waits for one.
//
// At first a posted receive at either end keeps a connection open: so all messages of an all_to_all
// use one connection, even if a rank has fewer places than peers. After a while only bytes in
// flight keep it open, not a posted receive, nor a long message that waits for its CTS, which may
// arrive over a later connection. So every connection can eventually be closed, and no rank waits
// forever for a place: an invitation holds a place only until it is answered or abandoned.
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

  // most_places: of this rank; more are made only if peers do not answer for long. `where` names
  // this rank's port in logs.
  VerbsConnections(VerbsQueuePairs& pairs, std::unique_ptr<Mailbox> mail, Rank me,
                   std::string where, int most_places);

  // Registers the first places. Throws Error.
  void begin();
  // Counts a message that was sent or has arrived.
  void use(VerbsConnection& c) { c.used = ++uses_; }
  // Connects to the peer, for a queued message, as soon as a place is free.
  void request(VerbsConnection& c);
  // Reads letters, answers them, and makes and ends connections.
  void poll();
  void read_letters();
  // Whether the thread may not sleep; otherwise a letter makes fd() readable, if fd() is not -1.
  bool busy() const { return mail_->waiting() || !requests_.empty(); }
  int fd() const { return mail_->fd(); }
  bool has_work() const { return busy() || unsettled_ > 0; }  // whether poll() has anything to do

  // Opens the connection: the peer is known to be connected.
  void open(VerbsConnection& c);
  // Frees the place after the queue pairs have ended for good.
  void closed(VerbsConnection& c) noexcept;
  // break_off() interrupts the queue pairs, reconnect() makes new ones; queued messages stay.
  void break_off(VerbsConnection& c) noexcept;
  void reconnect(VerbsConnection& c);

  // For rails (Recovery): makes the queue pairs, and returns the invitation for the peer; empty if
  // there is no place now. Throws Error.
  std::string invite_by_rails(VerbsConnection& c);
  // Connects the queue pairs to those in the peer's invitation. Throws Error.
  void accept(VerbsConnection& c, std::string_view theirs);

 private:
  static constexpr int kPlacesAtOnce = 8;  // places whose slots are registered together

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
  std::deque<VerbsConnection*> requests_;  // connections to be made
  int closing_ = 0;                        // connections that are kClosing
  int unsettled_ = 0;                      // connections that are neither kClosed nor kOpen
  int unsettled_polls_ = 0;
  std::uint64_t uses_ = 0;
  std::uint32_t attempts_ = 0;
};

}  // namespace weft
