// Calls on tensors of a GPU: on a stream of the group's own, which waits for the caller's stream,
// and which whoever waits for the Work waits for. The host waits for nothing.
//
// PyTorch's own streams and events serve all kinds of devices; of weft, the kind must be one that
// weft_comm_on_stream() takes. This file does not know which call is made.
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

// The GPU of these tensors; empty: the CPU's. Throws where they are on several devices.
std::optional<at::Device> gpu_of(const char* call, const std::vector<at::Tensor>& tensors);

// What a Work on a GPU waits for.
struct DeviceEnd {
  c10::Stream stream;  // the group's
  c10::Event event;
};

class DeviceCalls {
 public:
  // comm: of all calls on GPUs, and of no others; it must outlive the object.
  explicit DeviceCalls(weft_comm_t* comm) : comm_(comm) {}
  ~DeviceCalls();
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  // Runs `body` with the communicator that is bound to the group's stream of the device; the stream
  // is also PyTorch's current one meanwhile. The tensors are used there. Throws what `body` throws,
  // or where weft has no way to that device.
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
  std::mutex mutex_;            // calls have one order on all ranks
  std::map<int, Bound> bound_;  // by the device's index
};

}  // namespace weft_torch
