// Streams and events of calls on GPUs.
#include "device.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace weft_torch {

std::optional<at::Device> gpu_of(const char* call, const std::vector<at::Tensor>& tensors) {
  std::optional<at::Device> first;
  for (const at::Tensor& t : tensors) {
    if (!t.defined()) continue;
    TORCH_CHECK(!first || *first == t.device(), "weft: ", call, ": tensors are on ", *first,
                " and on ", t.device(), "; all tensors of a call must be on one device");
    first = t.device();
  }
  return first && !first->is_cpu() ? first : std::nullopt;
}

DeviceCalls::~DeviceCalls() {
  for (auto& [index, bound] : bound_) weft_comm_free(bound.comm);
}

DeviceCalls::Bound& DeviceCalls::bound(const char* call, at::Device device) {
  const auto there = bound_.find(device.index());
  if (there != bound_.end()) return there->second;
  const c10::impl::VirtualGuardImpl impl(device.type());
  const c10::Stream stream = impl.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  weft_comm_t* comm = nullptr;
  TORCH_CHECK_WITH(DistBackendError,
                   weft_comm_on_stream(comm_, stream.native_handle(), &comm) == WEFT_OK,
                   "weft: ", call, " of a tensor on ", device, ": ", weft_last_error(),
                   "; pass tensor.cpu(), or give that device a backend of its own, as in "
                   "init_process_group(\"cpu:weft,cuda:nccl\")");
  return bound_.emplace(device.index(), Bound{stream, comm}).first->second;
}

std::shared_ptr<DeviceEnd> DeviceCalls::run(const char* call, at::Device device,
                                            const std::vector<at::Tensor>& tensors,
                                            const std::function<void(weft_comm_t*)>& body) {
  const c10::DeviceGuard on_device(device);
  const c10::impl::VirtualGuardImpl impl(device.type());
  const std::lock_guard lock(mutex_);
  Bound& on = bound(call, device);
  c10::Event ready(device.type());
  ready.record(impl.getStream(device));
  ready.block(on.stream);
  for (const at::Tensor& t : tensors)
    if (t.defined()) t.record_stream(on.stream);
  const c10::StreamGuard on_stream(on.stream);
  body(on.comm);
  auto end = std::make_shared<DeviceEnd>(DeviceEnd{on.stream, c10::Event(device.type())});
  end->event.record(on.stream);
  return end;
}

}  // namespace weft_torch
