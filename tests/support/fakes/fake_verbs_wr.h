// ibv_wr_* on the fake device of fake_verbs.h, which includes this file.
#pragma once

#include "support/fakes/fake_verbs.h"

namespace weft::testing {

inline void FakeVerbs::begin_request(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint64_t address,
                                     std::uint32_t key, __be32 immediate) {
  Pair& p = begun(qp);
  ibv_send_wr& wr = p.begun.emplace_back();
  wr.wr_id = qp->wr_id;
  wr.send_flags = qp->wr_flags;
  wr.opcode = opcode;
  wr.imm_data = immediate;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = key;
}
inline void FakeVerbs::forget_begun(Pair& p) {
  p.begun.clear();
  p.pieces.clear();
  p.inlined.clear();
}
inline void FakeVerbs::ops_wr_start(ibv_qp_ex* qp) { forget_begun(begun(qp)); }
inline void FakeVerbs::ops_wr_write(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address) {
  begin_request(qp, IBV_WR_RDMA_WRITE, address, key, 0);
}
inline void FakeVerbs::ops_wr_write_imm(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address,
                                        __be32 immediate) {
  begin_request(qp, IBV_WR_RDMA_WRITE_WITH_IMM, address, key, immediate);
}
inline void FakeVerbs::add_piece(ibv_qp_ex* qp, const ibv_sge& piece) {
  Pair& p = begun(qp);
  p.begun.back().sg_list = &p.pieces.emplace_back(piece);
  p.begun.back().num_sge = 1;
}
inline void FakeVerbs::ops_wr_piece(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address,
                                    std::uint32_t bytes) {
  add_piece(qp, {address, bytes, key});
}
inline void FakeVerbs::ops_wr_pieces(ibv_qp_ex* qp, std::size_t n, const ibv_sge* pieces) {
  demand(n <= 1, "more pieces than the queue pair has");
  if (n) add_piece(qp, *pieces);
}
// Copies at once: inline data may be reused after the call.
inline void FakeVerbs::ops_wr_inline(ibv_qp_ex* qp, void* data, std::size_t bytes) {
  Pair& p = begun(qp);
  const std::string& kept = p.inlined.emplace_back(static_cast<const char*>(data), bytes);
  add_piece(qp,
            {reinterpret_cast<std::uint64_t>(kept.data()), static_cast<std::uint32_t>(bytes), 0});
  demand(p.begun.back().send_flags & IBV_SEND_INLINE, "inline data, but no flag: rxe sends none");
}
inline int FakeVerbs::ops_wr_complete(ibv_qp_ex* qp) {
  const std::lock_guard lock(get().mutex);
  Pair& p = begun(qp);
  for (std::size_t i = 0; i + 1 < p.begun.size(); ++i) p.begun[i].next = &p.begun[i + 1];
  p.by_wr += p.begun.size();
  ibv_send_wr* bad = nullptr;
  const int error = p.begun.empty() ? 0 : get().post(p, &p.begun.front(), &bad);
  forget_begun(p);
  return error;
}
inline void FakeVerbs::ops_wr_abort(ibv_qp_ex* qp) { forget_begun(begun(qp)); }

}  // namespace weft::testing
