// Links: the transports of this process, the choice of one for each pair of ranks, and rails that
// replace each other. This class does not depend on tasks, communicators or algorithms.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/engine/plan.h"
#include "coll/runtime/lock.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/offers.h"
#include "transport/rails/rails.h"
#include "transport/transport.h"

namespace weft {

class Links {
 public:
  explicit Links(const WorldOptions& options) : options_(options) {}
  // Destroys in the order of clear(): Rails before the decorators that use its faces.
  ~Links() { clear(); }
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // ---- set-up, before another thread may use the core
  // Must be called first. The topology must outlive the links.
  void place(Rank me, const Topology& topology) {
    me_ = me;
    topology_ = &topology;
  }
  void add_shm(std::unique_ptr<Transport> shm) { shm_link = add(std::move(shm)); }
  void add_rail(std::unique_ptr<Transport> rail) {
    const int link = add(std::move(rail));
    if (first_rail_link < 0) first_rail_link = link;
  }
  // If the rails can replace each other, puts Rails' transports in place of `inner`, on all ranks
  // or on none. on_event: called for each event of a rail. trouble: the port counters of a rail
  // that have risen, for the log.
  void set_up_rails(Job& job, std::vector<std::unique_ptr<Transport>>& inner,
                    std::function<void(const RailEvent&)> on_event,
                    std::function<std::string(int)> trouble);
  // Replaces each transport by the result of `around(transport, index)`.
  template <class F>
  void wrap(F around) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    for (std::size_t l = 0; l < all.size(); ++l) {
      transports_[l] = around(std::move(transports_[l]), static_cast<int>(l));
      all[l] = transports_[l].get();
    }
  }

  // ---- choice of the link
  // The index into `all` of the link between two world ranks; `b` is not this rank.
  int link_of(Rank a, Rank b) const {
    if (shm_peer[static_cast<std::size_t>(b)]) return shm_link;
    // Both ends must choose the same rail: the rail of the lower rank.
    return first_rail_link + topology_->rail(std::min(a, b));
  }
  int link_to(Rank peer) const { return link_of(me_, peer); }
  Transport& to(Rank peer) const WEFT_REQUIRES(core_held) {
    return *all[static_cast<std::size_t>(link_to(peer))];
  }
  // Null if this process shares no memory with other ranks, or checks its messages in shared
  // memory.
  Boards* boards() const WEFT_REQUIRES(core_held) {
    return shm_link < 0 ? nullptr : all[static_cast<std::size_t>(shm_link)]->boards();
  }
  std::string rail_name(int link) const {
    return link == shm_link ? std::string() : ", rail " + std::to_string(link - first_rail_link);
  }
  // Whether messages with that world rank may be offered (message_task.h). Integrity mode cannot
  // check bytes that a GPU fetches.
  bool offers_messages(Rank peer) const {
    return !options_.integrity && shm_peer[static_cast<std::size_t>(peer)] &&
           has_device[static_cast<std::size_t>(me_)] && has_device[static_cast<std::size_t>(peer)];
  }
  // The rails that a large message between the two ranks uses, `home` first.
  std::vector<int> stripes(Rank me, Rank peer, int home) const;

  // ---- polls
  // Adds the link to those that are polled.
  void use(std::uint8_t link) WEFT_REQUIRES(core_held) {
    if (!used_[link]) [[unlikely]]
      use_first(link);
  }
  Transport& use_for(Rank peer) WEFT_REQUIRES(core_held) {
    use(static_cast<std::uint8_t>(link_to(peer)));
    return to(peer);
  }
  // Adds the file descriptors by which the links in use wake a sleeping thread. False: the thread
  // must not sleep.
  bool arm(std::vector<int>& fds) WEFT_REQUIRES(core_held);
  // Polls the rails, so that peers get answers while no thread waits for a task.
  void poll_rails() noexcept WEFT_REQUIRES(core_held);
  // Passes the pending bytes of completed sends on rails to the kernel (Transport::before_pause()).
  void before_pause() WEFT_REQUIRES(core_held);

  // ---- ends
  void cancel(std::uint32_t id) WEFT_REQUIRES(core_held);
  // Drops messages with these bits of the tag that no task has received.
  void forget(std::uint64_t tag, std::uint64_t mask) WEFT_REQUIRES(core_held);
  void clear() WEFT_NO_THREAD_SAFETY_ANALYSIS;

  std::vector<Transport*> all WEFT_GUARDED_BY(core_held);  // shm if there is one, then all rails
  std::vector<std::size_t> polled WEFT_GUARDED_BY(core_held);  // the links in use, ascending
  std::vector<Link> kinds;       // the properties of `all` that plans use
  std::unique_ptr<Rails> rails;  // null unless rails can replace each other; until clear()
  int shm_link = -1, first_rail_link = -1;
  // Longer messages between hosts go in slices of this size, so that a message of device memory
  // overlaps with its copies. Both ends must slice, so all ranks do if any rank has a GPU.
  std::size_t message_slice = SIZE_MAX;
  std::vector<std::uint8_t> has_device;  // by world rank: the rank has a GPU
  std::vector<std::uint8_t> shm_peer;    // by world rank: shm reaches the rank

 private:
  void use_first(std::uint8_t link) WEFT_REQUIRES(core_held);
  int add(std::unique_ptr<Transport> transport) WEFT_NO_THREAD_SAFETY_ANALYSIS;

  const WorldOptions& options_;
  Rank me_ = 0;
  const Topology* topology_ = nullptr;
  std::array<bool, 256> used_ WEFT_GUARDED_BY(core_held){};  // by link: it is in `polled`
  std::vector<std::unique_ptr<Transport>> transports_ WEFT_GUARDED_BY(core_held);  // of `all`
};

}  // namespace weft
