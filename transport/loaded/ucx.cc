// The functions of UCX that weft calls.
#include "transport/loaded/jump.h"
#include "transport/loaded/loaded.h"

// clang-format off
#define WEFT_UCX(F)                                                                               \
  F(ucp_cleanup) F(ucp_config_modify) F(ucp_config_read) F(ucp_config_release)                    \
  F(ucp_context_query) F(ucp_ep_close_nbx)                                                       \
  F(ucp_ep_create) F(ucp_ep_flush_nbx) F(ucp_get_version) F(ucp_init_version)                     \
  F(ucp_request_cancel) F(ucp_request_check_status) F(ucp_request_free) F(ucp_tag_msg_recv_nbx)   \
  F(ucp_tag_probe_nb) F(ucp_tag_recv_nbx) F(ucp_tag_send_nbx) F(ucp_worker_arm)                   \
  F(ucp_worker_create) F(ucp_worker_destroy) F(ucp_worker_get_address) F(ucp_worker_get_efd)      \
  F(ucp_worker_progress) F(ucp_worker_release_address) F(ucs_status_string)
// clang-format on
WEFT_UCX(WEFT_JUMP)

namespace weft {

const LoadedLibrary& ucx_library() {
  static constexpr const char* kFiles[] = {"libucp.so.0"};  // loads libucs, too
  static const LoadedLibrary::Function functions[] = {WEFT_UCX(WEFT_JUMP_ENTRY)};
  static const LoadedLibrary library("UCX", kFiles, functions);
  return library;
}

}  // namespace weft
