// The wire of the fake device of fake_verbs.h, which includes this file: posts requests, delivers
// them early or late, and completes them.
#pragma once

#include "support/fakes/fake_verbs.h"

namespace weft::testing {

// Delivers this queue pair's posted requests; without `kind`, only some, unless the poller sleeps.
inline void FakeVerbs::carry(Pair& p) {
  for (int stays = unkind() && one_in(2) ? static_cast<int>(random() % 4) : -1;
       p.qp.state == IBV_QPS_RTS && !p.sends.empty(); --stays) {
    Pair* const to = pair(p.other);
    if (stays == 0 && to && !reinterpret_cast<Queue*>(to->qp.send_cq)->armed) return;
    if (!up || !to || to->qp.state == IBV_QPS_ERR) return fail(p, IBV_WC_RETRY_EXC_ERR);
    // A real device would retry for a long time.
    demand(to->qp.state == IBV_QPS_RTS, "sends to a peer that is not connected");
    demand(to->other == p.qp.qp_num, "sends to the queue pair of another connection");
    Request r;
    leave(p, &r);
    if (!r.bytes.empty()) demand(write(r.key, r.remote, r.bytes), "writes where it may not");
    p.wrote += r.bytes.size();
    if (r.opcode == IBV_WR_RDMA_WRITE) continue;
    demand(arrive(*to, r.immediate), "the receiver is not ready (RNR)");
  }
}
inline void FakeVerbs::flush(Pair& p) {
  p.qp.state = IBV_QPS_ERR;
  ibv_wc wc{};
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.opcode = IBV_WC_RECV;
  acknowledge(p, true);
  for (const Request& r : p.sends) {
    wc.wr_id = r.id;
    complete(p, wc);
  }
  for (const std::uint64_t id : p.receives) {
    wc.wr_id = id;
    complete(p, wc);
  }
  p.sends.clear();
  p.receives.clear();
}
// Returns an error, and in `bad` the first request that was not posted.
inline int FakeVerbs::post(Pair& p, ibv_send_wr* wr, ibv_send_wr** bad) {
  *bad = wr;
  if (refuse_sends) return EIO;
  ++counts.doorbells;
  for (int taken = 0; wr; wr = wr->next, ++taken) {
    *bad = wr;
    if (taken == refuse_after) return ENOMEM;
    ++counts.requests;
    if (p.qp.state == IBV_QPS_ERR) {  // failed, but its user has not polled the error yet
      ibv_wc wc{};
      wc.wr_id = wr->wr_id;
      wc.status = IBV_WC_WR_FLUSH_ERR;
      complete(p, wc);
      continue;
    }
    demand(p.qp.state == IBV_QPS_RTS, "sends over a queue pair that is not connected");
    demand(p.posted - p.freed < p.cap.max_send_wr, "more sends than a queue pair has room for");
    demand(wr->num_sge <= 1, "more pieces than the queue pair has");
    Request r;
    r.id = wr->wr_id;
    r.number = p.posted++;
    r.signalled = (wr->send_flags & IBV_SEND_SIGNALED) != 0;
    p.signalled += r.signalled;
    r.inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
    r.opcode = wr->opcode;
    r.remote = wr->wr.rdma.remote_addr;
    r.key = wr->wr.rdma.rkey;
    if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) r.immediate = be32toh(wr->imm_data);
    if (wr->num_sge) r.piece = wr->sg_list[0];
    if (r.inlined) {
      demand(r.piece.length <= p.cap.max_inline_data, "more inline than the queue pair has");
      ++counts.inlined;
      counts.inline_bytes += r.piece.length;
      if (r.piece.length)
        r.bytes.assign(reinterpret_cast<const char*>(r.piece.addr), r.piece.length);
    }
    p.sends.push_back(std::move(r));
  }
  if (wired && !std::ranges::count(unsent, &p)) unsent.push_back(&p);
  return 0;
}
// Acknowledges sent requests in queue pair order: all of them, or a random number.
inline void FakeVerbs::acknowledge(Pair& p, bool all) {
  while (!p.late.empty() && (all || !one_in(3))) {
    const ibv_wc wc = p.late.front();
    p.late.pop_front();
    complete(p, wc);
  }
}
inline void FakeVerbs::move_wire() {
  if (unkind()) std::shuffle(unsent.begin(), unsent.end(), random);
  const std::vector<Pair*> now = std::exchange(unsent, {});
  for (Pair* p : now) {
    carry(*p);
    if (!p->sends.empty()) unsent.push_back(p);
  }
  for (Pair& p : pairs)
    if (!p.late.empty()) acknowledge(p, reinterpret_cast<Queue*>(p.qp.send_cq)->armed);
}
inline int FakeVerbs::poll(Queue& queue, int n, ibv_wc* out) {
  auto& completions = queue.completions;
  if (wired)
    move_wire();
  else if (prompt)
    for (Pair& p : pairs)
      while (leave(p)) {
      }
  int i = 0;
  for (; i < n && !completions.empty(); ++i, completions.pop_front()) {
    out[i] = completions.front();
    // The completion of a send also completes all sends before it.
    if (Pair* p = pair(out[i].qp_num); p && out[i].opcode == IBV_WC_RDMA_WRITE)
      p->freed = out[i].byte_len + 1;
  }
  counts.completions += static_cast<std::size_t>(i);
  return i;
}

}  // namespace weft::testing
