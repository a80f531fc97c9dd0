// The functions of libibverbs that weft calls.
#include "transport/loaded/jump.h"
#include "transport/loaded/loaded.h"

// clang-format off
#define WEFT_VERBS(F)                                                                            \
  F(ibv_ack_async_event) F(ibv_ack_cq_events) F(ibv_alloc_pd) F(ibv_close_device)                \
  F(ibv_create_comp_channel) F(ibv_create_cq) F(ibv_create_qp) F(ibv_dealloc_pd)                 \
  F(ibv_dereg_mr) F(ibv_destroy_comp_channel) F(ibv_destroy_cq) F(ibv_destroy_qp)                \
  F(ibv_event_type_str) F(ibv_fork_init) F(ibv_free_device_list) F(ibv_get_async_event)          \
  F(ibv_get_cq_event) F(ibv_get_device_list) F(ibv_get_device_name) F(ibv_modify_qp)             \
  F(ibv_open_device) F(ibv_port_state_str) F(ibv_qp_to_qp_ex) F(ibv_query_device)                \
  F(ibv_query_ece) F(_ibv_query_gid_ex) F(_ibv_query_gid_table) F(ibv_query_pkey)                \
  F(ibv_query_port) F(ibv_reg_dmabuf_mr) F(ibv_reg_mr) F(ibv_reg_mr_iova) F(ibv_reg_mr_iova2)    \
  F(ibv_set_ece) F(ibv_wc_status_str)
// clang-format on
WEFT_VERBS(WEFT_JUMP)

namespace weft {

const LoadedLibrary& verbs_library() {
  static constexpr const char* kFiles[] = {"libibverbs.so.1"};
  static const LoadedLibrary::Function functions[] = {WEFT_VERBS(WEFT_JUMP_ENTRY)};
  static const LoadedLibrary library("verbs", kFiles, functions);
  return library;
}

}  // namespace weft
