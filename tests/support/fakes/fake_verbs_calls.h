// The functions of libibverbs on the device of fake_verbs.h, which includes this file. They replace
// the library's in the program.
#pragma once

#include "support/fakes/fake_verbs.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

extern "C" {

using weft::testing::FakeVerbs;

ibv_device** ibv_get_device_list(int* count) {
  static ibv_device* list[] = {&FakeVerbs::get().device, nullptr};
  *count = 1;
  return list;
}
void ibv_free_device_list(ibv_device**) {}
int ibv_fork_init() { return 0; }
const char* ibv_get_device_name(ibv_device*) { return "fake"; }

ibv_context* ibv_open_device(ibv_device*) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  if (fake.context.device) return &fake.context;  // another rank's thread may read it
  fake.extended.sz = sizeof fake.extended;
  fake.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  fake.extended.create_qp_ex = FakeVerbs::create_qp_ex;
  fake.extended.create_cq_ex = FakeVerbs::create_cq_ex;
  fake.extended.alloc_td = FakeVerbs::alloc_td;
  fake.extended.dealloc_td = FakeVerbs::dealloc_td;
  fake.extended.alloc_parent_domain = FakeVerbs::alloc_parent_domain;
  fake.context.device = &fake.device;
  fake.context.async_fd = -1;
  fake.context.ops.post_send = FakeVerbs::ops_post_send;
  fake.context.ops.post_recv = FakeVerbs::ops_post_recv;
  fake.context.ops.poll_cq = FakeVerbs::ops_poll_cq;
  fake.context.ops.req_notify_cq = FakeVerbs::ops_req_notify_cq;
  return &fake.context;
}
int ibv_close_device(ibv_context*) { return 0; }
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  const weft::testing::FakeLimits& limits = FakeVerbs::get().limits;
  attributes->max_qp = limits.max_qp;
  attributes->max_mr = limits.max_mr;
  attributes->max_cqe = limits.max_cqe;
  attributes->max_qp_wr = limits.max_qp_wr;
  attributes->max_qp_rd_atom = limits.max_rd_atomic;
  attributes->phys_port_cnt = 1;
  return 0;
}
int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* compat) {
  auto* const port = reinterpret_cast<ibv_port_attr*>(compat);
  port->state = FakeVerbs::get().up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  port->active_mtu = port->max_mtu = IBV_MTU_1024;
  port->max_msg_sz = 1000;  // so that a long message takes several requests
  port->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context*, ibv_gid_entry* entries, std::size_t, std::uint32_t,
                             std::size_t) {
  entries[0] = {};
  entries[0].port_num = 1;
  entries[0].gid_type = IBV_GID_TYPE_ROCE_V2;
  const std::uint8_t bytes[16] = {0, 0, 0,    0,    0,  0, 0, 0,
                                  0, 0, 0xff, 0xff, 10, 0, 0, FakeVerbs::get().address};
  std::memcpy(entries[0].gid.raw, bytes, sizeof bytes);
  return 1;
}
int ibv_get_async_event(ibv_context*, ibv_async_event* event) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  if (fake.reports.empty()) return -1;
  *event = fake.reports.front();
  fake.reports.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const std::lock_guard lock(FakeVerbs::get().mutex);
  FakeVerbs::get().domain.context = context;
  return &FakeVerbs::get().domain;
}
int ibv_dealloc_pd(ibv_pd*) { return 0; }

ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void* data, std::size_t bytes, std::uint64_t begin,
                         unsigned int access) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  std::size_t registered = 0;
  if (fake.most_registered != SIZE_MAX)
    for (const FakeVerbs::Region& r : fake.regions) registered += r.mr.length;
  if (registered + bytes > fake.most_registered ||
      fake.regions.size() >= static_cast<std::size_t>(fake.limits.max_mr))
    return errno = ENOMEM, nullptr;
  if (bytes == 0 || fake.refuse_regions > 0) {
    errno = bytes == 0 ? EINVAL : ENOMEM;
    fake.refuse_regions -= bytes > 0;
    return nullptr;
  }
  FakeVerbs::Region& r = fake.regions.emplace_back();
  ++fake.counts.registrations;
  fake.counts.registered_bytes += bytes;
  r.mr.addr = data;
  r.mr.length = bytes;
  r.mr.lkey = r.mr.rkey = fake.next_key++;
  r.begin = begin;
  r.access = static_cast<int>(access);
  fake.by_key[r.mr.lkey] = &r;
  return &r.mr;
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* data, std::size_t bytes, int access) {
  return ibv_reg_mr_iova2(pd, data, bytes, reinterpret_cast<std::uint64_t>(data),
                          static_cast<unsigned>(access));
}
int ibv_dereg_mr(ibv_mr* mr) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  fake.by_key.erase(mr->lkey);
  fake.regions.remove_if([=](const FakeVerbs::Region& r) { return &r.mr == mr; });
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context*) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  ibv_comp_channel& channel = fake.channels.emplace_back();
  channel.fd = eventfd(0, EFD_NONBLOCK);
  return &channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  close(channel->fd);
  fake.channels.remove_if([=](const ibv_comp_channel& c) { return &c == channel; });
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq**, void**) {
  std::uint64_t events = 0;
  return read(channel->fd, &events, sizeof events) == sizeof events ? 0 : -1;
}
void ibv_ack_cq_events(ibv_cq*, unsigned int) {}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel* channel, int) {
  return &FakeVerbs::get().make_queue(context, entries, channel).cq;
}
int ibv_destroy_cq(ibv_cq* cq) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  fake.queues.remove_if([=](const FakeVerbs::Queue& q) { return &q.cq == cq; });
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  auto* const made = FakeVerbs::get().make_pair(pd->context, attributes->send_cq, attributes->cap);
  return made ? &made->qp : nullptr;
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  auto& p = *reinterpret_cast<FakeVerbs::Pair*>(qp);
  return p.has_wr ? &p.extended : nullptr;
}
int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  if (FakeVerbs::get().ece.options == 0) return EOPNOTSUPP;
  *ece = FakeVerbs::get().ece;
  return 0;
}
int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  weft::testing::demand(qp->state == IBV_QPS_INIT, "options of ECE after the connection");
  reinterpret_cast<FakeVerbs::Pair*>(qp)->ece = *ece;
  return 0;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const std::lock_guard lock(FakeVerbs::get().mutex);
  auto& p = *reinterpret_cast<FakeVerbs::Pair*>(qp);
  if (attributes->qp_state == IBV_QPS_ERR) {
    FakeVerbs::get().flush(p);
  } else {
    // The states are RESET, INIT, RTR, RTS, in this order.
    if (attributes->qp_state != qp->state + 1) return EINVAL;
    const int why = FakeVerbs::get().unreachable;
    if (why != 0 && attributes->qp_state == IBV_QPS_RTR) return why;
    qp->state = attributes->qp_state;
    if (mask & IBV_QP_DEST_QPN) p.other = attributes->dest_qp_num;
    const FakeVerbs::Pair* const to = FakeVerbs::get().pair(p.other);
    if (qp->state == IBV_QPS_RTS && to && to->qp.state == IBV_QPS_RTS && to->other == qp->qp_num)
      ++FakeVerbs::get().counts.connections;
  }
  return 0;
}
int ibv_destroy_qp(ibv_qp* qp) {
  FakeVerbs& fake = FakeVerbs::get();
  const std::lock_guard lock(fake.mutex);
  std::erase_if(fake.unsent, [=](const FakeVerbs::Pair* p) { return &p->qp == qp; });
  fake.by_number.erase(qp->qp_num);
  fake.pairs.remove_if([=](const FakeVerbs::Pair& p) { return &p.qp == qp; });
  return 0;
}

}  // extern "C"
