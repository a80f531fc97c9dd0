// Collectives on device memory and in the order of a stream: who runs them, and how.
//
// A lane belongs to a communicator. Its thread takes the communicator's device operations one after
// the other, in the order of the calls, and runs each as a few plain steps: agree with the other
// ranks on what and where, wait for the stream, move the data, agree that all are done, let the
// stream go on. What it says to other ranks travels on a companion of the communicator, with the
// same ranks and an id of its own, so that nothing meets the user's own operations. Not installed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/gpu/kernels.h"
#include "coll/gpu/messages.h"
#include "coll/gpu/record.h"
#include "coll/runtime/core.h"
#include "transport/gpu/device.h"
#include "transport/gpu/gates.h"
#include "transport/gpu/pinned.h"
#include "transport/gpu/streams.h"

namespace weft {

struct DeviceBlock;   // gpu/blocks.h
class GpuDirect;      // gpu/gpudirect.h
class MappedBuffers;  // gpu/mapped.h

struct DeviceOperation {
  Collective collective = Collective::kBarrier;
  Call call;
  std::vector<std::size_t> blocks;  // what the spans of a vector call point to
  Rank root = 0;
  bool in_place = false;
  DeviceRecord mine;                  // what the others are told
  std::uint64_t tag = 0;              // that it would have on host memory; 0: captured
  const Algorithm* forced = nullptr;  // by set_algorithm()
  bool deterministic = false;         // by set_deterministic() or the World's options
  bool ordered = false;               // by a stream, at `gate`
  StreamFence gate;
  Task* handle = nullptr;  // told when it is over; null for what was captured
  bool detached = false;   // nobody waits for the handle either
};

class DeviceLane {
 public:
  enum class Kind : std::uint8_t {
    kCalls = 1,   // what is called
    kGraphs = 2,  // what was captured, at each replay
  };
  // The communicator outlives its lanes.
  DeviceLane(Device& device, GroupState& group, Kind kind);
  ~DeviceLane();  // waits for the operation that is running; others are given up
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  // Takes the operation; puts it in order on the stream if it is an ordered one. Throws Error when
  // the device refuses, and then nothing has happened. Not with the core's mutex held.
  void add(std::unique_ptr<DeviceOperation> op, Device::Stream stream);

  // Ends what is under way with the core's failure. Not with the core's mutex held.
  void stop() noexcept;
  bool idle() const;

  // ---- for the steps of an operation ; lane thread only ----
  Device& device() const { return device_; }
  Communicator& wire() { return wire_; }
  // The collective on host memory, on the lane's companion.
  Request start_on_host(Collective c, Call call, Rank root) {
    return wire_.start(c, std::move(call), root);
  }
  const GroupState& group() const { return group_; }
  GroupState& companion() { return *companion_; }  // with the core's mutex held
  Device::Stream stream(int gpu, int which) { return own_stream(device_, gpu, which); }
  // Waits until an event of a stream is reached, while transfers go on; throws when the job fails
  // meanwhile.
  void wait(Device::Event event);
  // An event to record; taken back when the lane ends.
  Device::Event event(int gpu, std::size_t which);
  // Pinned host memory, `bytes` long, that peers of this host see too; the same until asked for
  // more.
  std::byte* staging(std::size_t bytes);

 private:
  void serve();
  DeviceOperation* next(std::unique_lock<std::mutex>& lock);
  void run(DeviceOperation& op);
  Status run_steps(DeviceOperation& op);
  std::uint64_t begin_record(DeviceOperation& op);
  void note_path(const DeviceOperation& op, const Algorithm* path);
  void wait_for_stream(const DeviceOperation& op);
  bool given_up();
  void move_transfers();

  Device& device_;
  GroupState& group_;  // the user's
  Core& core_;
  const Kind kind_;
  std::unique_ptr<GroupState> companion_;
  Communicator wire_;
  std::uint64_t replays_ = 0;
  unsigned looks_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<DeviceOperation>> queue_;  // kGraphs: all that were captured
  bool busy_ = false;
  std::atomic<bool> stop_{false};

  StreamFences gates_;
  bool told_ = false;  // that the direct path cannot be taken
  std::unique_ptr<GpuDirect> gpudirect_;

  std::vector<std::vector<Device::Event>> events_;  // by GPU
  PooledMemory staging_;
  std::thread thread_;
};

// The lanes of a communicator, made when first needed.
struct DeviceLanes {
  std::mutex mutex;  // a call is put on its stream and in its lane in one go
  std::unique_ptr<DeviceLane> calls, graphs;
  std::unique_ptr<DeviceMessages> messages;
};

// How the flight recorder marks it: bits of book::Record::state.
std::uint8_t how(const DeviceOperation& op);

// Whether all ranks called the same; if not, who and what, in the same words on every rank. world:
// the ranks' world ranks.
Status agreement_of(std::span<const DeviceRecord> records, std::span<const Rank> world,
                    bool captured);

// What last_algorithm() calls the two ways; no schedules.
extern const Algorithm kDirectPath, kStagedPath;

// Runs an operation in device memory of ranks that reach each other's: the records and buffers of
// all ranks, and of a vector one their blocks for this one. All ranks' inputs are there; returns
// when what this rank writes is. Throws Error when the device fails.
void run_direct(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
                const MappedBuffers& buffers, std::span<const DeviceBlock> blocks);

// Runs an operation through pinned host memory, slice by slice: down, the collective of the host's
// memory, up, three slices under way. Works for all kinds of memory and all hosts. longest:
// elements of the longest block of any rank.
Status run_staged(DeviceLane& lane, const DeviceOperation& op, std::size_t longest);

}  // namespace weft
