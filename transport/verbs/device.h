// RDMA devices: a thin, owning layer over libibverbs. The layer does not depend on ranks or
// messages.
//
// Every constructor here throws an Error that names the device, the kernel's error and a remedy.
// Objects must be destroyed before the device that they were made from.
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

#include "transport/gpu/device.h"
#include "transport/verbs/gid.h"
#include "transport/verbs/settings.h"

namespace weft {

// Returns the names of this host's verbs devices in the kernel's order; empty if it has none.
std::vector<std::string> verbs_devices();

// The description of a port that one end of a connection sends to the other.
struct VerbsPort {
  std::uint16_t lid = 0;
  int mtu = 0;  // bytes: the port's, or the settings' smaller value
  bool ethernet = true;
  std::uint16_t pkey = kEveryPartition;  // of the partition that queue pairs are in
  std::vector<Gid> gids;                 // candidates(), or the GID of settings.gid_index

  std::string encode() const;
  static VerbsPort decode(std::string_view text);  // throws Error
};

// An asynchronous event of the device.
struct VerbsReport {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  int port = 0;            // the port that the event concerns
  ibv_qp* pair = nullptr;  // the queue pair that the event concerns; may be destroyed already
};

class VerbsDevice {
 public:
  // Opens the device `name` (as in `ibv_devices`), its port, and a protection domain.
  explicit VerbsDevice(const std::string& name, const VerbsSettings& settings = verbs_settings());
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const std::string& name() const { return name_; }
  const VerbsSettings& settings() const { return settings_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  // The domain of queue pairs and completion queues: a thread domain, whose objects are used by one
  // thread at a time without locks in the driver, or domain() if the device has none.
  ibv_pd* queue_domain() const { return parent_ ? parent_ : domain_; }
  bool one_thread() const { return parent_ != nullptr; }
  int port_number() const { return port_number_; }
  int pkey_index() const { return pkey_index_; }
  const VerbsPort& port() const { return port_; }
  // Reads the port again: its addresses may have changed while the link was down. Throws Error if
  // the port is down.
  void refresh() { open_port(); }
  const ibv_device_attr& limits() const { return limits_; }
  bool is_software() const { return limits_.vendor_id == kSoftRoce; }  // rdma_rxe
  std::size_t max_message() const { return max_message_; }
  double rate_gbps() const { return rate_gbps_; }  // the driver's rate of the port; 0: unknown
  // Returns the access flag that lets the device place peers' RDMA writes in any order, or 0.
  int relaxed() const { return settings_.relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0; }
  // Names the port: "device mlx5_0 port 1".
  std::string where() const;

  // Reads the device's next asynchronous event, mostly a failed port or queue pair. False: there is
  // none. Does not block.
  bool next_report(VerbsReport& report) noexcept;
  int report_fd() const { return context_->async_fd; }  // readable if an event waits
  bool port_active() const noexcept;                    // the port's state now

 private:
  static constexpr std::uint32_t kSoftRoce = 0xffffff;  // RXE_VENDOR_ID
  void open_port();
  void join_partition(int entries);  // entries of the port's table
  void make_thread_domain() noexcept;
  void close() noexcept;
  std::string name_;
  VerbsSettings settings_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_td* thread_ = nullptr;
  ibv_pd* parent_ = nullptr;  // domain_ with thread_
  int port_number_ = 0;
  int pkey_index_ = 0;
  VerbsPort port_;
  ibv_device_attr limits_{};
  std::size_t max_message_ = 0;
  double rate_gbps_ = 0;
};

// A memory registration. The memory must stay mapped while the registration lives. GPU memory is
// registered as a dma-buf, or else by its address, which needs the module nvidia_peermem.
class VerbsMemory {
 public:
  // access: ibv_access_flags; 0 is enough to send from the memory, and allows read-only memory.
  VerbsMemory(const VerbsDevice& device, void* data, std::size_t bytes, int access);
  VerbsMemory(VerbsMemory&& other) noexcept : region_(std::exchange(other.region_, nullptr)) {}
  VerbsMemory& operator=(VerbsMemory&& other) noexcept {
    std::swap(region_, other.region_);
    return *this;
  }
  ~VerbsMemory();
  std::uint32_t lkey() const { return region_->lkey; }
  std::uint32_t rkey() const { return region_->rkey; }
  // True if `data` is memory of a GPU, which the CPU must not access.
  static bool on_gpu(const void* data) noexcept {
    Device* const gpus = weft::device();
    return gpus != nullptr && data != nullptr && gpus->residence(data).kind == MemoryKind::kDevice;
  }
  std::byte* data() const { return static_cast<std::byte*>(region_->addr); }
  std::size_t bytes() const { return region_->length; }

 private:
  ibv_mr* region_;
};

// A completion queue, without locks if the device is one_thread(); `channel`: with a file
// descriptor to sleep on.
class VerbsCq {
 public:
  VerbsCq(const VerbsDevice& device, int depth, bool channel);
  ~VerbsCq();
  VerbsCq(const VerbsCq&) = delete;
  VerbsCq& operator=(const VerbsCq&) = delete;

  ibv_cq* handle() const { return cq_; }
  int depth() const { return depth_; }
  // Reads up to out.size() completions and returns their number; -1: the device failed.
  int poll(std::span<ibv_wc> out) noexcept {
    return ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data());
  }
  // Makes fd() readable at the next completion. Poll once more after this: earlier completions do
  // not make it readable. False: the device refused.
  bool arm() noexcept;
  int fd() const { return channel_ ? channel_->fd : -1; }
  // Consumes the events that made fd() readable; does not block.
  void disarm() noexcept;

 private:
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  int depth_ = 0;
  unsigned unacknowledged_ = 0;
};

// ---- failed completions and asynchronous events: what they most likely mean (errors.cc)

// Explains a completion: "status 12 (transport retry counter exceeded): the peer stopped
// acknowledging: ...".
std::string verbs_cause(ibv_wc_status status, std::uint32_t vendor_error = 0);

// The scope of an asynchronous event. kNobody: nothing has failed.
enum class VerbsScope : std::uint8_t { kNobody, kQueuePair, kPort, kDevice };
VerbsScope scope_of(ibv_event_type type) noexcept;
// Whether the port may have other addresses or partitions after the event.
bool changes_address(ibv_event_type type) noexcept;
// Explains an event: "IBV_EVENT_PORT_ERR (port error): the link went down, ...".
std::string verbs_cause(ibv_event_type type);

}  // namespace weft
