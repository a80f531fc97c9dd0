// Messages in the order of a stream: send, recv and exchange of a communicator bound by on().
//
// A thread of the communicator takes them all, however many streams they are on, and moves each as
// soon as its own stream has come: no message waits for another one's stream or peer. What is sent
// is copied to pinned host memory first, and then its stream goes on: two ranks that both send and
// then receive do not wait for each other. What is received in device memory lands in host memory
// and is copied up. Between hosts in slices: while one is copied, others are on their way. Messages
// take their number among those of their pair when they are called, so they meet messages of host
// memory and of no stream too; those of a captured graph take it at each replay, among what is
// replayed. Device memory outside of streams comes here as well, and waits for no stream.
// Not installed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/runtime/core.h"
#include "transport/gpu/device.h"
#include "transport/gpu/gates.h"
#include "transport/gpu/pinned.h"

namespace weft {

class DeviceMessages {
 public:
  // Sends whose stream has gone on may hold so much host memory; the streams of further ones wait
  // until it is less. An exchange alone may hold more.
  static constexpr std::size_t kHeldBytes = std::size_t{256} << 20;

  // The communicator outlives this.
  DeviceMessages(Device& device, GroupState& group);
  ~DeviceMessages();  // waits for what was called; captured ones are given up
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  // Checked messages that go together, in the order of a stream or of none. `handle` is told when
  // all are over, and may be null; what is captured has none. Throws Error when the device refuses.
  // Not with the core's mutex held.
  void add(std::span<const Message> messages, std::optional<Device::Stream> stream, bool captured,
           Task* handle);

  // Waits until what was sent has been taken, or has failed, unless a stream has yet to go on.
  void deliver();
  bool idle() const;
  // Ends what is under way with the core's failure. Not with the core's mutex held.
  void stop() noexcept;

 private:
  // A message, and how far its slices are: a send's are copied to `room`, then posted; a receive's
  // are posted, and as each is over it is taken from `room`.
  struct MessagePart {
    Message message;
    int gpu = -1;  // of device memory; -1: the host may touch it
    Task* op = nullptr;
    PooledMemory room = {};
    std::size_t slice_bytes = kStagedSlice;
    std::uint32_t slices = 1;
    std::uint32_t ready = 0;  // these, from the first one, may be posted (own: taken)
    std::uint32_t taken = 0;  // of a receive: so many are in their place
    std::vector<std::uint32_t> landed = {};   // of a receive; with the core's mutex held
    std::vector<std::uint32_t> arrived = {};  // those that the thread is to take
    std::deque<Device::Event> copies = {};    // under way, in the order of their stream
    MessagePart* source = nullptr;            // of a receive from this rank itself: the send
    bool own = false;                         // to or from this rank itself
    std::size_t bytes() const { return message.count * size_of(message.type); }
  };
  // Messages that go together.
  struct MessageGroup {
    std::vector<MessagePart> legs;
    StreamFence gate;
    Task* handle = nullptr;
    bool captured = false;
    bool set_out = false;
    bool open = false;  // its stream goes on
    Status status;
    bool over(const MessagePart& leg) const;
    bool passed(const MessagePart& leg) const;  // what is on the stream later may touch its memory
    std::size_t held() const;                   // bytes that are sent from rooms
  };
  struct Captured {
    std::vector<Message> messages;
    StreamFence gate;
  };

  MessageGroup flight_of(std::span<const Message> messages) const;
  void enter(MessageGroup& f);  // with the core's mutex held
  void serve();
  bool take_arrivals();  // with the mutex held
  void notice_failure();
  bool turn();
  void set_out(MessageGroup& f);
  bool look_at_device(MessageGroup& f);
  bool look_at_transports(MessageGroup& f, bool clock);  // with the core's mutex held
  void take_down(MessagePart& leg);
  void take_up(MessagePart& leg, std::uint32_t slice);
  void copy(MessagePart& leg, std::uint32_t slice, int stream, std::byte* to,
            const std::byte* from);
  bool end_copies(MessagePart& leg);
  void fail(MessageGroup& f, const std::string& why);
  Status why_given_up() const;  // with the core's mutex held
  bool given_up() const { return stop_ || core_.broken.load(std::memory_order_relaxed); }
  void open_gates();
  void let_go();

  Device& device_;
  GroupState& group_;  // the user's
  Core& core_;
  std::unique_ptr<GroupState> replays_;  // counts the messages of graphs

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  StreamFences gates_;
  std::list<MessageGroup> waiting_;  // for their streams
  std::list<Captured> captured_;
  std::list<MessageGroup> flights_;  // the thread's; changed with the mutex held
  std::size_t closed_ = 0;           // calls, and replays that have come, whose gates are not open
  std::atomic<bool> stop_{false};
  std::chrono::steady_clock::time_point leave_at_{};  // once stopped

  unsigned looks_ = 0;
  std::thread thread_;
};

}  // namespace weft
