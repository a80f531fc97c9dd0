// Calls on tensors of a GPU run on a stream of the group, which waits for the caller's stream. A
// wait on the Work makes the waiting thread's stream wait for it. The host does not wait.
//
// PyTorch's generic streams and events work for all kinds of devices; weft needs one that
// weft_comm_on_stream() accepts. This file does not depend on which call is made.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <weft.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace weft_torch {

// The GPU of these tensors; empty: the CPU. Throws if they are on several devices.
std::optional<at::Device> gpu_of(const char* call, const std::vector<at::Tensor>& tensors);

// What a Work on a GPU waits for.
struct DeviceEnd {
  c10::Stream stream;  // the group's stream
  c10::Event event;
};

class DeviceCalls {
 public:
  // comm: for all calls on GPUs, and for no others; it must outlive the object.
  explicit DeviceCalls(weft_comm_t* comm) : comm_(comm) {}
  ~DeviceCalls();
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  // Runs `body` with the communicator that is bound to the group's stream of the device. The stream
  // is PyTorch's current stream meanwhile, and uses the tensors. Throws what `body` throws, or if
  // weft cannot use that device.
  std::shared_ptr<DeviceEnd> run(const char* call, at::Device device,
                                 const std::vector<at::Tensor>& tensors,
                                 const std::function<void(weft_comm_t*)>& body);

 private:
  struct Bound {
    c10::Stream stream;
    weft_comm_t* comm;
  };
  Bound& bound(const char* call, at::Device device);

  weft_comm_t* const comm_;
  std::mutex mutex_;            // calls must have one order on all ranks
  std::map<int, Bound> bound_;  // by the device's index
};

}  // namespace weft_torch
