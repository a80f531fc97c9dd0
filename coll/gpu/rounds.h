// DeviceRounds: the engine's Compute on a GPU. The thread of a lane carries the user's data between
// device memory and the copies on which the engine's rounds work.
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
  // until the result is in its place. root: the index in `across`. Throws Error when the device
  // fails, as the job has.
  Status run(const Call& call, Rank root, std::span<const Rank> across = {});

 protected:
  // Puts the copy of a slice between the user's memory and slice.at on the stream.
  virtual void bring(const Work::Slice& slice, Device::Stream stream) = 0;
  virtual void take(const Work::Slice& slice, Device::Stream stream) = 0;
  // Puts a reduction or a copy on the stream.
  void work(const DeviceReduce& reduce, Device::Stream stream);

  DeviceLane& lane_;
  const DeviceOperation& op_;
  const int gpu_;

 private:
  struct Started {
    Work work;
    std::size_t event;  // of the lane, by its index
  };
  bool turn();
  void start(Work&& work);

  RedOp sum_op_ = RedOp::kSum;  // of the engine's reductions
  std::vector<Started> started_;
  std::vector<Work> landed_;
  std::vector<std::size_t> free_events_;
  std::size_t events_ = 0;
};

}  // namespace weft
