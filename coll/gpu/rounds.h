// DeviceRounds: the engine's Compute on a GPU. The thread of a lane carries the user's data between
// device memory and the copies on which the engine's rounds work.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "coll/engine/compute.h"
#include "coll/gpu/blocks.h"
#include "coll/gpu/lane.h"

namespace weft {

class DeviceRounds : public Compute {
 public:
  DeviceRounds(DeviceLane& lane, const DeviceOperation& op, bool on_device,
               std::size_t round_bytes);

  // Runs the collective, of this call, on the lane's companion, until the result is in its place.
  // Throws Error when the device fails, as the job has.
  Status run(Collective collective, Call call, Rank root);

 protected:
  // Puts the copy of a slice between the user's memory and slice.at on the stream.
  virtual void bring(const Work::Slice& slice, Device::Stream stream) = 0;
  virtual void take(const Work::Slice& slice, Device::Stream stream) = 0;

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

  std::vector<Started> started_;
  std::vector<std::size_t> free_events_;
  std::size_t events_ = 0;
};

}  // namespace weft
