// DeviceRounds: the engine's Compute on a GPU. The thread of a lane copies the user's data between
// device memory and the copies that the engine's rounds work on.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "coll/engine/compute.h"
#include "coll/gpu/kernels.h"
#include "coll/gpu/lane.h"

namespace weft {

class DeviceRounds : public Compute {
 public:
  DeviceRounds(DeviceLane& lane, const DeviceOperation& op, bool on_device,
               std::size_t round_bytes);

  // Runs the task's collective with this call among `across`, ranks of the group (empty: all),
  // until the result is in place. root: the index in `across`. Throws Error if the device fails;
  // the job has then failed.
  Status run(const Call& call, Rank root, std::span<const Rank> across = {});

 protected:
  // Queue the copy of a slice between the user's memory and slice.at on the stream.
  virtual void bring(const Work::Slice& slice, Device::Stream stream) = 0;
  virtual void take(const Work::Slice& slice, Device::Stream stream) = 0;
  // Queues a reduction or a copy on the stream.
  void work(const DeviceReduce& reduce, Device::Stream stream);

  DeviceLane& lane_;
  const DeviceOperation& op_;
  const int gpu_;

 private:
  struct Started {
    Work work;
    std::size_t event;  // index of the lane's event
  };
  bool turn();
  void start(Work&& work);

  RedOp sum_op_ = RedOp::kSum;  // operator of the engine's reductions
  std::vector<Started> started_;
  std::vector<Work> landed_;
  std::vector<std::size_t> free_events_;
  std::size_t events_ = 0;
};

}  // namespace weft
