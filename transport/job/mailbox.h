// Letters (out-of-band messages) between any two ranks, relayed by rank 0, for transports that need
// to reach a peer before they connect to it. Delivery is at most once and in order per sender: a
// letter is lost if the job has ended or if the receiver's box is full.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "topo/base/mutex.h"
#include "topo/base/status.h"
#include "transport/control/socket.h"

namespace weft {

struct Letter {
  Rank from = kNoRank;
  std::string bytes;
};

// A rank's mailbox for one user of letters. No call waits for another rank. Thread-safe.
class Mailbox {
 public:
  static constexpr std::size_t kMostBytes = 64u << 10;  // size limit of a letter

  virtual ~Mailbox() = default;
  virtual void send(Rank to, std::string_view bytes) noexcept = 0;
  // Removes the oldest letter and returns it in `letter`; returns false if the box is empty, which
  // costs one load.
  virtual bool receive(Letter& letter) noexcept = 0;
  virtual bool waiting() const noexcept = 0;  // true if a letter is queued
  // Returns a descriptor that is readable while a letter is queued; -1 if unsupported.
  virtual int fd() const noexcept { return -1; }
};

// The mailboxes of one rank, numbered from 0 in the order in which they are opened.
class PostOffice : public std::enable_shared_from_this<PostOffice> {
 public:
  // Sends a letter of this rank to box number `box` of rank `to`.
  using Carry = std::function<void(std::uint32_t box, Rank to, std::string_view bytes)>;
  explicit PostOffice(Carry carry) : carry_(std::move(carry)) {}

  std::unique_ptr<Mailbox> open();
  // Queues a letter in a box, which may not have been opened yet.
  void deliver(std::uint32_t box, Rank from, std::string_view bytes);
  // Called when the job ends: letters sent after this call are dropped.
  void close() noexcept;

 private:
  class Box;
  static constexpr std::uint32_t kMostBoxes = 1024;
  static constexpr int kMostLying = 64;  // limit of queued letters of one sender in one box

  struct Lying {
    Mutex mutex;
    std::deque<Letter> letters WEFT_GUARDED_BY(mutex);
    std::unordered_map<Rank, int> of WEFT_GUARDED_BY(mutex);  // letters by sender
    std::atomic<bool> any{false};
    Fd wake = make_wake_fd();
  };
  std::shared_ptr<Lying> box(std::uint32_t number);
  void send(std::uint32_t box, Rank to, std::string_view bytes) noexcept;

  Mutex carrying_;  // not mutex_, because callers of deliver() may hold a lock that carry_ takes
  Carry carry_ WEFT_GUARDED_BY(carrying_);
  Mutex mutex_;
  std::vector<std::shared_ptr<Lying>> boxes_ WEFT_GUARDED_BY(mutex_);
  std::uint32_t opened_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft
