// Explains completion codes and device events. This file does not depend on which peer they
// concern.
#include <fmt/format.h>

#include <utility>

#include "transport/verbs/device.h"

namespace weft {
namespace {

const char* likely(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "no error";
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer stopped acknowledging: its process ended, link down, wrong GID or ACL, or a "
             "path MTU that a switch does not carry";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer had no receive posted each time it was asked: it is stopped or overrun";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair had failed before: the first completion that failed says why";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer's memory is not registered for this, or was deregistered: a key out of date "
             "or a wrong address";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer refused the request: longer than its receive, or an operation that it does "
             "not allow";
    case IBV_WC_REM_OP_ERR:
      return "the peer could not execute the request: its own queue or memory failed";
    case IBV_WC_REM_ABORT_ERR:
      return "the peer aborted the operation";
    case IBV_WC_LOC_PROT_ERR:
      return "memory of this process that is not registered, or no longer is";
    case IBV_WC_LOC_LEN_ERR:
      return "a message longer than the receive posted for it, or than the port can send";
    case IBV_WC_LOC_QP_OP_ERR:
      return "the queue pair does not allow this request: its state, or its set-up";
    case IBV_WC_LOC_ACCESS_ERR:
      return "the memory here does not allow remote writes";
    case IBV_WC_RESP_TIMEOUT_ERR:
      return "the peer answered too late";
    case IBV_WC_FATAL_ERR:
      return "the device failed: look at dmesg";
    default:
      return "a fault of the device or its driver: look at dmesg";
  }
}

}  // namespace

std::string verbs_cause(ibv_wc_status status, std::uint32_t vendor_error) {
  return fmt::format("status {} ({}{}): {}", static_cast<int>(status), ibv_wc_status_str(status),
                     vendor_error ? fmt::format(", vendor {:#x}", vendor_error) : "",
                     likely(status));
}

VerbsScope scope_of(ibv_event_type type) noexcept {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      return VerbsScope::kQueuePair;
    case IBV_EVENT_PORT_ERR:
      return VerbsScope::kPort;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      return VerbsScope::kDevice;
    default:
      return VerbsScope::kNobody;
  }
}

bool changes_address(ibv_event_type type) noexcept {
  return type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_LID_CHANGE ||
         type == IBV_EVENT_PKEY_CHANGE || type == IBV_EVENT_SM_CHANGE ||
         type == IBV_EVENT_CLIENT_REREGISTER || type == IBV_EVENT_PORT_ACTIVE;
}

std::string verbs_cause(ibv_event_type type) {
  const auto words = [&]() -> std::pair<const char*, const char*> {
    switch (type) {
      case IBV_EVENT_QP_FATAL:
        return {"IBV_EVENT_QP_FATAL", "the device gave up a queue pair: look at dmesg"};
      case IBV_EVENT_QP_REQ_ERR:
        return {"IBV_EVENT_QP_REQ_ERR", "the peer sent a request that is not valid here"};
      case IBV_EVENT_QP_ACCESS_ERR:
        return {"IBV_EVENT_QP_ACCESS_ERR", "the peer asked for memory that it may not touch"};
      case IBV_EVENT_PORT_ERR:
        return {"IBV_EVENT_PORT_ERR", "the link went down: a cable, a switch, or the interface"};
      case IBV_EVENT_CQ_ERR:
        return {"IBV_EVENT_CQ_ERR", "a completion queue overran or failed: look at dmesg"};
      case IBV_EVENT_DEVICE_FATAL:
        return {"IBV_EVENT_DEVICE_FATAL", "the device failed: look at dmesg"};
      default:
        return {"an event", "nothing has failed"};
    }
  }();
  return fmt::format("{} ({}): {}", words.first, ibv_event_type_str(type), words.second);
}

}  // namespace weft
