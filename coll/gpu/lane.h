// A lane runs collectives on device memory and collectives ordered by a stream.
//
// A lane belongs to a communicator. Its thread takes the communicator's device tasks one after the
// other, in the order of the calls, and runs each as a few plain steps: agree with the other ranks
// on the call and its buffers, wait for the stream, move the data, agree that all ranks are done,
// let the stream continue. A lane's messages use a companion of the communicator, with the same
// ranks and its own id, so they never match the user's own tasks.
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
#include "topo/base/mutex.h"
#include "transport/gpu/device.h"
#include "transport/gpu/gates.h"
#include "transport/gpu/pinned.h"
#include "transport/gpu/streams.h"

namespace weft {

struct DeviceBlock;   // gpu/blocks.h
class GpuDirect;      // gpu/gpudirect.h
class MappedBuffers;  // gpu/mapped.h

struct DeviceOperation {
  explicit DeviceOperation(Core& of) : core(of) {}
  ~DeviceOperation() WEFT_EXCLUDES(core_held) {
    const CoreLock lock(core.mutex);
    prepared.drop();
  }
  DeviceOperation(const DeviceOperation&) = delete;
  DeviceOperation& operator=(const DeviceOperation&) = delete;
  Collective collective() const { return prepared->what.collective; }
  Rank root() const { return prepared->of.root; }
  bool forced() const { return prepared->of.forced != nullptr; }

  Core& core;
  PreparedRef prepared;
  Call call;                        // its tag is that of the call on host memory; 0: captured
  std::vector<std::size_t> blocks;  // owns the spans of a vector call
  DeviceRecord mine;                // what this rank sends to the others
  StreamFence gate;                 // of an ordered call
  Task* handle = nullptr;           // finished at the end; null for a captured call
  bool detached = false;            // no caller waits for the handle
};

class DeviceLane {
 public:
  enum class Kind : std::uint8_t {
    kCalls = 1,   // calls of the program
    kGraphs = 2,  // captured calls, at each replay
  };
  // The communicator must outlive its lanes. Takes the memory that tasks need, since a GPU may make
  // later allocations wait for all streams.
  DeviceLane(Device& device, GroupState& group, Kind kind);
  ~DeviceLane();  // kCalls: waits for all tasks, unless stopped
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  // Takes the task, and orders an `ordered` one on the stream. Throws Error, without effect, if the
  // device refuses.
  void add(std::unique_ptr<DeviceOperation> op, Device::Stream stream)
      WEFT_EXCLUDES(core_held, mutex_);

  // Ends all tasks with the communicator's failure.
  void stop() noexcept WEFT_EXCLUDES(core_held, mutex_);
  bool idle() const WEFT_EXCLUDES(mutex_);

  // ---- for the steps of a task; lane thread only ----
  Device& device() const { return device_; }
  Kind kind() const { return kind_; }
  Communicator& wire() { return wire_; }
  // Starts the call with a Compute that outlives the task, among `across`: ranks of the group, the
  // same in every call; empty: all.
  Request start_by(Compute& compute, Collective c, const Call& call, Rank root,
                   std::span<const Rank> across);
  // Fails the communicator, with this rank as the cause.
  void fail(const std::string& why);
  const GroupState& group() const { return group_; }
  Device::Stream stream(int gpu, int which) { return own_stream(device_, gpu, which); }
  // Waits until a stream reaches the event; throws if the job fails.
  void wait(Device::Event event);
  // Returns an event to record; the lane frees all its events when it is destroyed.
  Device::Event event(int gpu, std::size_t which);
  // Returns `bytes` of pinned host memory that peers on this host can access, too; the same memory
  // until a call asks for more.
  std::byte* staging(std::size_t bytes);

 private:
  void serve() WEFT_EXCLUDES(mutex_);
  DeviceOperation* next(MutexLock& lock) WEFT_REQUIRES(mutex_);
  void run(DeviceOperation& op);
  Status run_steps(DeviceOperation& op);
  std::uint64_t begin_record(DeviceOperation& op);
  void note_path(const DeviceOperation& op, const Algorithm* path);
  void wait_for_stream(const DeviceOperation& op);
  bool given_up();

  Device& device_;
  GroupState& group_;  // the user's
  Core& core_;
  const Kind kind_;
  std::unique_ptr<GroupState> companion_, across_;  // across_: null until a task needs it
  Communicator wire_;
  std::uint64_t replays_ = 0;
  unsigned looks_ = 0;

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  // kGraphs: all captured calls.
  std::deque<std::unique_ptr<DeviceOperation>> queue_ WEFT_GUARDED_BY(mutex_);
  bool busy_ WEFT_GUARDED_BY(mutex_) = false;
  std::atomic<bool> stop_{false};

  StreamFences gates_;
  bool told_ = false;  // whether it is logged that the direct path is closed
  std::unique_ptr<GpuDirect> gpudirect_;

  std::vector<std::vector<Device::Event>> events_;  // by GPU
  PooledMemory staging_;
  std::thread thread_;
};

// The lanes of a communicator, created at their first use.
struct DeviceLanes {
  Mutex mutex;  // held while a call enters its stream and its lane
  std::unique_ptr<DeviceLane> calls WEFT_GUARDED_BY(mutex), graphs WEFT_GUARDED_BY(mutex);
  std::unique_ptr<DeviceMessages> messages WEFT_GUARDED_BY(mutex);
};

// Returns kOk if all ranks made the same call, otherwise kMismatch with two differing calls, the
// same text on every rank. world: the ranks' world ranks.
Status agreement_of(std::span<const DeviceRecord> records, std::span<const Rank> world,
                    bool captured);

// The names of the two paths for last_algorithm(); they have no schedules.
extern const Algorithm kDirectPath, kStagedPath;

// Runs a task of ranks that can access each other's device memory. records, buffers: of all ranks;
// blocks: in a vector collective, each rank's block for this rank. All inputs must be ready;
// returns when this rank's results are written. Throws Error if the device fails.
void run_direct(DeviceLane& lane, const DeviceOperation& op, std::span<const DeviceRecord> records,
                const MappedBuffers& buffers, std::span<const DeviceBlock> blocks);

// Returns the number of blocks of the largest buffer of any rank: the root's, if there is a root.
std::size_t most_blocks(Collective collective, std::size_t ranks);
// Returns the bytes of a block, or of a message, in one round among `ranks` ranks. longest:
// elements of the longest block.
std::size_t round_bytes_of(const DeviceOperation& op, std::size_t longest, std::size_t ranks);

// Runs a task through pinned host memory (gpu/rounds.cc). longest: elements of the longest block of
// any rank.
Status run_staged(DeviceLane& lane, const DeviceOperation& op, std::size_t longest);

}  // namespace weft
