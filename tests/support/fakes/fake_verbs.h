// libibverbs without a device: this header defines its functions, which replace the library's in
// one test program. It has one device with one port. The test plays the remote queue pair or, with
// `wired`, queue pairs of this program are connected to each other.
//
// Misuse aborts the program: requests beyond a queue's depth, unregistered memory, an overflowing
// completion queue. Unless a test sets `kind`, a wired device reorders queue pairs and delays
// requests and acknowledgements for some polls, with the seed WEFT_FAKE_SEED (1). It has the limits
// of real devices, and counts doorbells and other costs. Include it in one source file only.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/fakes/fake_verbs_limits.h"

namespace weft::testing {

inline void demand(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "fake verbs: %s\n", what);
  std::abort();
}

class FakeVerbs {
 public:
  struct Request {
    std::uint64_t id = 0;
    std::uint32_t number = 0;  // number of the queue pair
    bool signalled = false;
    bool inlined = false;
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint64_t remote = 0;
    std::uint32_t key = 0;
    std::uint32_t immediate = 0;  // in host byte order
    ibv_sge piece{};
    std::string bytes;  // set when the request is sent
  };
  struct Pair {
    Pair() = default;
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
    ibv_qp_ex extended{};  // first member: an ibv_qp* or ibv_qp_ex* is also a Pair*
    ibv_qp& qp = extended.qp_base;
    bool has_wr = false;            // created for ibv_wr_*
    ibv_ece ece{};                  // as last set
    std::deque<ibv_send_wr> begun;  // since ibv_wr_start()
    std::deque<ibv_sge> pieces;     // scatter/gather entries of `begun`
    std::deque<std::string> inlined;
    std::size_t by_wr = 0;  // total requests posted by ibv_wr_*
    ibv_qp_cap cap{};
    std::deque<std::uint64_t> receives;
    std::deque<Request> sends;             // posted, not sent
    std::deque<ibv_wc> late;               // completions of sent requests
    std::uint32_t posted = 0, freed = 0;   // requests posted; slots free again
    std::uint32_t other = 0;               // number of the remote queue pair
    std::size_t wrote = 0, signalled = 0;  // totals: bytes and requests
  };
  struct Queue {
    ibv_cq cq{};  // first member: an ibv_cq* is also a Queue*
    bool one_thread = false;
    std::deque<ibv_wc> completions;
    bool armed = false;
  };
  struct Region {
    ibv_mr mr{};
    std::uint64_t begin = 0;  // the address that peers and requests use
    int access = 0;
  };

  static FakeVerbs& get() {
    static FakeVerbs fake;
    return fake;
  }

  // ---- controls of a test ----------------------------------------------------------------------

  Pair* pair(std::uint32_t number) {
    const auto found = by_number.find(number);
    return found == by_number.end() ? nullptr : found->second;
  }
  Region* region(std::uint32_t key) {
    const auto found = by_key.find(key);
    return found == by_key.end() ? nullptr : found->second;
  }
  // RDMA write by the peer. False: the device refuses it.
  bool write(std::uint32_t key, std::uint64_t address, std::string_view bytes) {
    const Region* r = region(key);
    if (!r || !(r->access & IBV_ACCESS_REMOTE_WRITE) || !covers(*r, address, bytes.size()))
      return false;
    std::memcpy(static_cast<char*>(r->mr.addr) + (address - r->begin), bytes.data(), bytes.size());
    return true;
  }
  // The peer's message consumes a receive. False: none is posted, so a device would retry it.
  bool arrive(Pair& p, std::uint32_t immediate, bool with_immediate = true) {
    if (p.qp.state != IBV_QPS_RTS || p.receives.empty()) return false;
    ibv_wc wc{};
    wc.wr_id = p.receives.front();
    wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc.imm_data = htobe32(immediate);
    if (with_immediate) wc.wc_flags = IBV_WC_WITH_IMM;
    p.receives.pop_front();
    complete(p, wc);
    return true;
  }
  // Sends and acknowledges the oldest request. False if there is none.
  bool leave(Pair& p, Request* left = nullptr) {
    if (p.qp.state != IBV_QPS_RTS || p.sends.empty()) return false;
    Request r = std::move(p.sends.front());
    p.sends.pop_front();
    if (!r.inlined) r.bytes = read(r.piece);
    if (r.signalled) {
      ibv_wc wc{};
      wc.wr_id = r.id;
      wc.opcode = IBV_WC_RDMA_WRITE;
      wc.byte_len = r.number;  // unused for sends: holds the request number
      if (unkind())
        p.late.push_back(wc);
      else
        complete(p, wc);
    }
    if (left) *left = std::move(r);
    return true;
  }
  // Fails the queue pair with this status for its oldest request or receive.
  void fail(Pair& p, ibv_wc_status status) {
    if (p.qp.state != IBV_QPS_RTS) return;
    acknowledge(p, true);
    ibv_wc wc{};
    wc.status = status;
    wc.opcode = IBV_WC_RECV;
    if (!p.sends.empty()) {
      wc.wr_id = p.sends.front().id;
      p.sends.pop_front();
    } else if (!p.receives.empty()) {
      wc.wr_id = p.receives.front();
      p.receives.pop_front();
    } else {
      return;
    }
    complete(p, wc);
    flush(p);
  }

  // Sets the port state. Going down exhausts the retries of pending requests.
  void set_port(bool is_up) {
    const std::lock_guard lock(mutex);
    up = is_up;
    ibv_async_event event{};
    event.event_type = is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
    event.element.port_num = 1;
    reports.push_back(event);
    if (!is_up)
      for (Pair& p : pairs)
        if (!p.sends.empty()) fail(p, IBV_WC_RETRY_EXC_ERR);
  }

  // Totals of operations that are costly on real hardware.
  struct Counts {
    std::size_t doorbells = 0, requests = 0, completions = 0;
    std::size_t inlined = 0, inline_bytes = 0;
    std::size_t connections = 0;  // both ends connected to each other
    std::size_t pairs = 0, registrations = 0, registered_bytes = 0;
  };
  Counts counts;
  FakeLimits limits = kFakeLimits[0];
  bool kind = false;
  std::size_t most_registered = SIZE_MAX;  // bytes: the limit of locked memory
  int refuse_after = -1;                   // a chain loses the requests after this number; -1: none

  // Sends leave whenever the completion queue is polled.
  bool prompt = false;
  // Sends arrive at the connected queue pair.
  bool wired = false;
  bool up = true;  // port state
  // Features of newer drivers, for devices opened later; calls of a missing feature fail.
  bool has_wr = true, has_thread_domains = true, has_parent_domains = true,
       has_extended_queues = true;
  ibv_ece ece{0x2c9, 6, 0};  // no options: none
  std::uint8_t address = 1;  // last byte of its GID
  // Error of the transition to RTR: ETIMEDOUT if the peer's port does not answer.
  int unreachable = 0;
  // post_send fails.
  bool refuse_sends = false;
  int refuse_regions = 0;  // number of registrations that fail
  std::deque<ibv_async_event> reports;
  std::list<Pair> pairs;
  std::list<Region> regions;

  // ---- called by the functions below ------------------------------------------------------------

  bool covers(const Region& r, std::uint64_t address, std::size_t bytes) const {
    return address >= r.begin && bytes <= r.mr.length && address - r.begin <= r.mr.length - bytes;
  }
  std::string read(const ibv_sge& piece) {
    if (piece.length == 0) return {};
    const Region* r = region(piece.lkey);
    demand(r && covers(*r, piece.addr, piece.length), "sends memory that is not registered");
    return {static_cast<const char*>(r->mr.addr) + (piece.addr - r->begin), piece.length};
  }
  void complete(Pair& p, ibv_wc wc) {
    wc.qp_num = p.qp.qp_num;
    auto& q = *reinterpret_cast<Queue*>(p.qp.send_cq);
    q.completions.push_back(wc);
    demand(q.completions.size() <= static_cast<std::size_t>(q.cq.cqe),
           "completion queue overflows");
    const std::uint64_t one = 1;
    if (std::exchange(q.armed, false) && q.cq.channel)
      demand(::write(q.cq.channel->fd, &one, sizeof one) == sizeof one, "its channel is full");
  }
  bool unkind() const { return wired && !kind; }
  bool one_in(unsigned n) { return random() % n == 0; }
  void carry(Pair& p);
  void flush(Pair& p);
  int post(Pair& p, ibv_send_wr* wr, ibv_send_wr** bad);
  void acknowledge(Pair& p, bool all);
  void move_wire();
  int poll(Queue& queue, int n, ibv_wc* out);

  // Called by inline functions of verbs.h. Instruction counts exclude functions named
  // FakeVerbs::ops_*.
  static int ops_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    const std::lock_guard lock(get().mutex);
    return get().post(*reinterpret_cast<Pair*>(qp), wr, bad);
  }
  static int ops_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
    const std::lock_guard lock(get().mutex);
    auto& p = *reinterpret_cast<Pair*>(qp);
    for (; wr; wr = wr->next) p.receives.push_back(wr->wr_id);
    demand(p.receives.size() <= p.cap.max_recv_wr,
           "more receives than the queue pair has room for");
    return 0;
  }
  static int ops_poll_cq(ibv_cq* cq, int n, ibv_wc* out) {
    const std::lock_guard lock(get().mutex);
    return get().poll(*reinterpret_cast<Queue*>(cq), n, out);
  }
  static int ops_req_notify_cq(ibv_cq* cq, int) {
    const std::lock_guard lock(get().mutex);
    reinterpret_cast<Queue*>(cq)->armed = true;
    return 0;
  }

  // ---- ibv_wr_*, in fake_verbs_wr.h ------------------------------------------------------------

  static void begin_request(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint64_t address,
                            std::uint32_t key, __be32 immediate);
  static void add_piece(ibv_qp_ex* qp, const ibv_sge& piece);
  static void ops_wr_start(ibv_qp_ex* qp);
  static void ops_wr_write(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address);
  static void ops_wr_write_imm(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address,
                               __be32 immediate);
  static void ops_wr_piece(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address,
                           std::uint32_t bytes);
  static void ops_wr_pieces(ibv_qp_ex* qp, std::size_t n, const ibv_sge* pieces);
  static void ops_wr_inline(ibv_qp_ex* qp, void* data, std::size_t bytes);
  static int ops_wr_complete(ibv_qp_ex* qp);
  static void ops_wr_abort(ibv_qp_ex* qp);
  static Pair& begun(ibv_qp_ex* qp) { return *reinterpret_cast<Pair*>(qp); }
  static void forget_begun(Pair& p);

  // ---- called by inline functions on an extended context ----------------------------------------

  static ibv_qp* create_qp_ex(ibv_context* of, ibv_qp_init_attr_ex* attributes) {
    if (!get().has_wr) return errno = EOPNOTSUPP, nullptr;
    Pair* const made = get().make_pair(of, attributes->send_cq, attributes->cap);
    if (!made) return nullptr;
    Pair& p = *made;
    p.has_wr = true;
    p.extended.wr_start = ops_wr_start;
    p.extended.wr_rdma_write = ops_wr_write;
    p.extended.wr_rdma_write_imm = ops_wr_write_imm;
    p.extended.wr_set_sge = ops_wr_piece;
    p.extended.wr_set_sge_list = ops_wr_pieces;
    p.extended.wr_set_inline_data = ops_wr_inline;
    p.extended.wr_complete = ops_wr_complete;
    p.extended.wr_abort = ops_wr_abort;
    return &p.qp;
  }
  static ibv_cq_ex* create_cq_ex(ibv_context* of, ibv_cq_init_attr_ex* attributes) {
    if (!get().has_extended_queues) return errno = EOPNOTSUPP, nullptr;
    const bool one = attributes->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    demand(!one || attributes->parent_domain == &get().parent, "a queue of another domain");
    Queue& q = get().make_queue(of, static_cast<int>(attributes->cqe), attributes->channel);
    q.one_thread = one;
    return reinterpret_cast<ibv_cq_ex*>(&q.cq);
  }
  static ibv_td* alloc_td(ibv_context* of, ibv_td_init_attr*) {
    if (!get().has_thread_domains) return errno = EOPNOTSUPP, nullptr;
    const std::lock_guard lock(get().mutex);
    ++get().threads;
    if (get().thread.context != of) get().thread.context = of;
    return &get().thread;
  }
  static int dealloc_td(ibv_td*) {
    const std::lock_guard lock(get().mutex);
    --get().threads;
    return 0;
  }
  static ibv_pd* alloc_parent_domain(ibv_context* of, ibv_parent_domain_init_attr*) {
    if (!get().has_parent_domains) return errno = EOPNOTSUPP, nullptr;
    const std::lock_guard lock(get().mutex);
    if (get().parent.context != of) get().parent.context = of;
    return &get().parent;
  }

  // Returns nullptr and sets errno if the device refuses it.
  Pair* make_pair(ibv_context* of, ibv_cq* sends, const ibv_qp_cap& cap) {
    const std::lock_guard lock(mutex);
    if (!limits.reliable) return errno = EOPNOTSUPP, nullptr;
    if (pairs.size() >= static_cast<std::size_t>(limits.max_qp)) return errno = ENOMEM, nullptr;
    const auto above = [](std::uint32_t asked, int most) {
      return asked > static_cast<std::uint32_t>(most);
    };
    if (above(cap.max_inline_data, limits.max_inline) || above(cap.max_send_wr, limits.max_qp_wr) ||
        above(cap.max_recv_wr, limits.max_qp_wr))
      return errno = EINVAL, nullptr;
    Pair& p = pairs.emplace_back();
    ++counts.pairs;
    p.qp.context = of;
    p.qp.send_cq = sends;
    p.qp.qp_num = next_number++;
    by_number[p.qp.qp_num] = &p;
    p.cap = cap;
    return &p;
  }
  Queue& make_queue(ibv_context* of, int entries, ibv_comp_channel* channel) {
    const std::lock_guard lock(mutex);
    Queue& q = queues.emplace_back();
    q.cq.context = of;
    q.cq.cqe = entries;
    q.cq.channel = channel;
    return q;
  }

  ibv_device device{};
  verbs_context extended{};
  ibv_context& context = extended.context;
  ibv_pd domain{}, parent{};
  ibv_td thread{};
  int threads = 0;  // live thread domains
  std::list<ibv_comp_channel> channels;
  std::list<Queue> queues;
  std::map<std::uint32_t, Pair*> by_number;
  std::map<std::uint32_t, Region*> by_key;
  std::vector<Pair*> unsent;   // wired: with unsent requests
  std::recursive_mutex mutex;  // ranks may be threads
  std::uint32_t next_number = 17, next_key = 1;
  std::mt19937 random{seed()};

 private:
  static std::uint32_t seed() {
    const char* const text = std::getenv("WEFT_FAKE_SEED");
    return text ? static_cast<std::uint32_t>(std::atoi(text)) : 1;
  }
};

}  // namespace weft::testing

#include "support/fakes/fake_verbs_calls.h"
#include "support/fakes/fake_verbs_wire.h"
#include "support/fakes/fake_verbs_wr.h"
