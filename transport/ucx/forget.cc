// Drops unexpected messages of the ucx transport by receiving them into a buffer that is discarded.
// This file is independent of the caller's reason.
#include <memory>
#include <vector>

#include "transport/ucx/transport.h"

namespace weft {
namespace {

// Longer messages wait at the sender (rendezvous) and use no memory here. The number per call is
// limited so that calls are short.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr int kAtOnce = 64;

using Sink = std::vector<std::byte>;

void drop(void* handle, ucs_status_t, const ucp_tag_recv_info_t*, void* sink) noexcept {
  delete static_cast<Sink*>(sink);
  ucp_request_free(handle);
}

}  // namespace

void UcxTransport::forget(std::uint64_t tag, std::uint64_t mask) noexcept {
  if (!worker_) return;
  std::erase_if(unexpected_, [&](const auto& s) {
    return s->here && !s->wanted && (s->tag & mask) == (tag & mask);
  });
  for (int i = 0; i < kAtOnce; ++i) {
    ucp_tag_recv_info_t info;
    const ucp_tag_t wire = tag & tag_mask(), wire_mask = mask & tag_mask();  // from any source
    if (!ucp_tag_probe_nb(worker_.get(), wire, wire_mask, 0, &info)) return;
    if (info.length > kMostBytes) return;
    ucp_tag_message_h message = ucp_tag_probe_nb(worker_.get(), wire, wire_mask, 1, &info);
    if (!message) return;
    auto sink = std::make_unique<Sink>(info.length);
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv = &drop;
    param.user_data = sink.get();
    void* handle = ucp_tag_msg_recv_nbx(worker_.get(), sink->data(), info.length, message, &param);
    if (UCS_PTR_IS_PTR(handle)) (void)sink.release();  // from here on the callback owns it
  }
}

}  // namespace weft
