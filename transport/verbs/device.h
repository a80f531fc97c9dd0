// RDMA devices: a thin, owning layer over libibverbs. Knows nothing of ranks or messages.
//
// Everything here throws Error while it is built, naming the device, what the kernel said and a
// remedy. Objects must be destroyed before the device that they were made from.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/verbs/gid.h"
#include "transport/verbs/settings.h"

namespace weft {

// The names of the verbs devices of this host, as the kernel lists them; empty where there is none.
std::vector<std::string> verbs_devices();

// What one end of a connection tells the other of its port.
struct VerbsPort {
  std::uint16_t lid = 0;
  int mtu = 0;  // bytes: the port's, or less where the settings say so
  bool ethernet = true;
  std::uint16_t pkey = kEveryPartition;  // of the partition that queue pairs are in
  std::vector<Gid> gids;                 // candidates(), or the one that the settings name

  std::string encode() const;
  static VerbsPort decode(std::string_view text);  // throws Error
};

struct VerbsReport {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  int port = 0;            // of reports about a port
  ibv_qp* pair = nullptr;  // of reports about a queue pair; may be gone already
};

class VerbsDevice {
 public:
  // `name` as in `ibv_devices`. Opens the device, its port, and a protection domain.
  explicit VerbsDevice(const std::string& name, const VerbsSettings& settings = verbs_settings());
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const std::string& name() const { return name_; }
  const VerbsSettings& settings() const { return settings_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  int port_number() const { return port_number_; }
  int pkey_index() const { return pkey_index_; }
  const VerbsPort& port() const { return port_; }
  // Looks at the port again: a link that was down may have come back with other addresses. Throws
  // Error where it is down.
  void refresh() { open_port(); }
  const ibv_device_attr& limits() const { return limits_; }
  std::size_t max_message() const { return max_message_; }
  double rate_gbps() const { return rate_gbps_; }  // of the port, as its driver says; 0: unknown
  // RDMA writes of peers may be placed in any order where the settings want it, and the device can.
  int relaxed() const { return settings_.relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0; }
  // "device mlx5_0 port 1".
  std::string where() const;

  // What the device reports of its own accord: failed ports and queue pairs, mainly. False when
  // there is nothing (more). Never waits.
  bool next_report(VerbsReport& report) noexcept;
  int report_fd() const { return context_->async_fd; }  // readable when there is one
  bool port_active() const noexcept;                    // as it is now

 private:
  void open_port();
  void join_partition(int entries);  // of the port's table
  void close() noexcept;
  std::string name_;
  VerbsSettings settings_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  int port_number_ = 0;
  int pkey_index_ = 0;
  VerbsPort port_;
  ibv_device_attr limits_{};
  std::size_t max_message_ = 0;
  double rate_gbps_ = 0;
};

// Registered memory. What it covers must stay mapped while it lives. Memory of a GPU is registered
// as a dma-buf, and where there is none by its address, which needs the module nvidia_peermem.
class VerbsMemory {
 public:
  // access: of ibv_access_flags; 0 is enough to send from it, also from read-only memory.
  VerbsMemory(const VerbsDevice& device, void* data, std::size_t bytes, int access);
  VerbsMemory(VerbsMemory&& other) noexcept : region_(std::exchange(other.region_, nullptr)) {}
  VerbsMemory& operator=(VerbsMemory&& other) noexcept {
    std::swap(region_, other.region_);
    return *this;
  }
  ~VerbsMemory();
  std::uint32_t lkey() const { return region_->lkey; }
  std::uint32_t rkey() const { return region_->rkey; }
  std::byte* data() const { return static_cast<std::byte*>(region_->addr); }
  std::size_t bytes() const { return region_->length; }

 private:
  ibv_mr* region_;
};

// A completion queue, with a channel to sleep on when asked for.
class VerbsCq {
 public:
  VerbsCq(const VerbsDevice& device, int depth, bool channel);
  ~VerbsCq();
  VerbsCq(const VerbsCq&) = delete;
  VerbsCq& operator=(const VerbsCq&) = delete;

  ibv_cq* handle() const { return cq_; }
  int depth() const { return depth_; }
  // Up to out.size() completions; -1 when the device failed.
  int poll(std::span<ibv_wc> out) noexcept {
    return ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data());
  }
  // The next completion makes fd() readable. Poll once more after this: what came before it does
  // not. False when the device refuses.
  bool arm() noexcept;
  int fd() const { return channel_ ? channel_->fd : -1; }
  // Takes what made fd() readable; never waits.
  void disarm() noexcept;

 private:
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  int depth_ = 0;
  unsigned unacknowledged_ = 0;
};

}  // namespace weft
