// Messages ordered by a stream: send, recv and exchange of a communicator bound by on().
//
// One thread of the communicator progresses all streams' messages, each as soon as its own stream
// has arrived: no message waits for another message's stream or peer. A send first copies its data
// to pinned host memory, and then its stream continues: two ranks that both send and then receive
// do not deadlock. A receive into device memory lands in host memory and is copied up. Messages
// between hosts are sliced: one slice is copied while others are in flight.
//
// Between GPUs of a host no byte passes through host memory (gpu/offers.cc). The sender copies its
// data to GPU memory of weft, and then its stream continues; without a stream, the data stay in
// place. It offers them, and the receiver maps and copies them, and confirms. A receiver that
// cannot map them, or not yet because a stream waits, asks for the bytes through host memory. A
// message takes its number in its pair of ranks when it is called, so it also matches messages of
// host memory and without stream; a captured message takes its number at each replay, among
// replayed messages. Messages of device memory without a stream are handled here as well.
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
#include "coll/tasks/message_task.h"
#include "topo/base/mutex.h"
#include "transport/gpu/device.h"
#include "transport/gpu/device_peers.h"
#include "transport/gpu/gates.h"
#include "transport/gpu/pinned.h"

namespace weft {

class DeviceMessages {
 public:
  // The host memory that sends may hold after their streams have continued; the streams of further
  // sends wait until less is held. A single exchange may hold more.
  static constexpr std::size_t kHeldBytes = std::size_t{256} << 20;
  // The GPU memory of this process that is kept for stream-ordered sends to GPUs of the host.
  static constexpr std::size_t kGpuRooms = std::size_t{256} << 20;
  // The callers of sends up to this size do not wait for the receiver.
  static constexpr std::size_t kEagerBytes = 4096;

  // The communicator must outlive its DeviceMessages.
  DeviceMessages(Device& device, GroupState& group);
  ~DeviceMessages();  // waits for called messages, drops captured ones
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  // Takes checked messages that progress together, ordered by `stream` if there is one. `handle` is
  // finished when all are over; it may be null, and is null for captured messages. Throws Error if
  // the device refuses.
  void add(std::span<const Message> messages, std::optional<Device::Stream> stream, bool captured,
           Task* handle) WEFT_EXCLUDES(core_held, mutex_);

  // Waits until all messages are over, unless a stream has not continued yet.
  void deliver() WEFT_EXCLUDES(core_held, mutex_);
  bool idle() const WEFT_EXCLUDES(mutex_);
  // Ends all messages with the communicator's failure.
  void stop() noexcept WEFT_EXCLUDES(core_held, mutex_);

 private:
  // A message, and the progress of its slices. A send copies each slice to `room`, then posts it; a
  // receive posts each slice, and copies it from `room` when it has landed.
  struct MessagePart {
    Message message;
    int gpu = -1;      // GPU of the memory; -1: the host may touch it
    bool own = false;  // to or from this rank itself
    MessageTask* op = nullptr;
    PooledMemory room = {}, gpu_room = {};  // gpu_room: of a send that is offered
    std::size_t slice_bytes = kStagedSlice;
    std::uint32_t slices = 1;
    std::uint32_t ready = 0;  // slices, from the first, that may be posted (own: copied)
    std::uint32_t taken = 0;  // receive: number of slices at their destination
    std::vector<std::uint32_t> landed = {};   // receive: guarded by the core's mutex
    std::vector<std::uint32_t> arrived = {};  // landed slices that the thread has to copy
    std::deque<Device::Event> copies = {};    // copies in flight, in the order of their stream
    MessagePart* source = nullptr;            // receive from this rank itself: the send
    // A send: is offered, and has been declined. A receive: was offered, and is being fetched.
    bool offered = false, declined = false, fetching = false;
    bool mapped = false;                        // whether the memory at `address` is mapped
    std::optional<DeviceAddress> address = {};  // where the offered bytes are
    std::size_t bytes() const { return message.count * size_of(message.type); }
  };
  // Messages that progress together.
  struct MessageGroup {
    std::vector<MessagePart> legs;
    StreamFence gate;
    Task* handle = nullptr;
    bool captured = false;
    bool started = false;
    bool open = false;  // its stream continues
    Status status;
    bool over(const MessagePart& leg) const;
    bool passed(const MessagePart& leg) const;  // later work of the stream may touch its memory
    bool over_for_caller() const;
    std::size_t held() const;  // bytes of its sends that are held in staging buffers
  };
  struct Captured {
    std::vector<Message> messages;
    StreamFence gate;
  };

  MessageGroup flight_of(std::span<const Message> messages) const;
  void take_rooms(MessageGroup& f, bool ordered) WEFT_EXCLUDES(mutex_);
  void enter(MessageGroup& f) WEFT_REQUIRES(core_held);
  void serve() WEFT_EXCLUDES(mutex_);
  bool take_arrivals() WEFT_REQUIRES(mutex_);
  void look_for_failure() {
    if (++looks_ % 64 == 0) core_.failures.notice();
  }
  bool turn();
  void start(MessageGroup& f);
  bool look_at_device(MessageGroup& f);
  bool look_at_transports(MessageGroup& f, bool clock) WEFT_REQUIRES(core_held);
  // ---- offers.cc
  bool may_offer(const MessagePart& leg) const;
  void take_gpu_room(MessagePart& leg, bool ordered);
  bool take_aside(MessagePart& leg, bool ordered);
  void fetch(MessagePart& leg, bool now);
  bool look_at_offer(MessagePart& leg) WEFT_REQUIRES(core_held);

  void take_down(MessagePart& leg);
  void take_up(MessagePart& leg, std::uint32_t slice);
  void copy(MessagePart& leg, std::uint32_t slice, int stream, std::byte* to,
            const std::byte* from);
  bool end_copies(MessagePart& leg);
  void fail(MessageGroup& f, const std::string& why);
  Status why_given_up() const WEFT_REQUIRES(core_held);
  bool all_over() const WEFT_REQUIRES(mutex_) { return closed_ == 0 && under_way_ == 0; }
  bool given_up() const { return stop_ || group_.broken.load(std::memory_order_relaxed); }
  void map_wanted();
  bool open_gates();
  void let_go();

  Device& device_;
  GroupState& group_;  // the user's
  Core& core_;
  std::unique_ptr<GroupState> replays_;  // numbers the messages of graphs

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  StreamFences gates_;
  std::list<MessageGroup> waiting_ WEFT_GUARDED_BY(mutex_);  // groups that wait for their streams
  std::list<Captured> captured_ WEFT_GUARDED_BY(mutex_);
  std::list<MessageGroup> flights_;                    // groups that only the thread progresses
  std::size_t under_way_ WEFT_GUARDED_BY(mutex_) = 0;  // flights_.size(), for other threads
  // Calls, and replays that have arrived, whose fences are closed.
  std::size_t closed_ WEFT_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> stop_{false};
  // The deadline after stop(). Written before stop_ is set, read after.
  std::chrono::steady_clock::time_point leave_at_{};

  unsigned looks_ = 0;
  bool told_ = false;  // whether it is logged that a peer's GPU memory cannot be mapped
  std::thread thread_;
};

}  // namespace weft
