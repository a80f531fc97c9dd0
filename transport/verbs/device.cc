// Opens RDMA devices, registers memory and makes completion queues. This file does not depend on
// queue pairs.
#include "transport/verbs/device.h"

#include <endian.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "topo/base/status.h"
#include "topo/sysfs.h"
#include "transport/gpu/device.h"
#include "transport/loaded/loaded.h"

namespace weft {
namespace {

// Before Linux 5.12, if a process forks and then writes to a registered page, it gets a copy, and
// the NIC keeps the old page. ibv_fork_init(), called first, keeps registered pages out of
// children; later kernels do not need it.
struct DeviceList {
  int count = 0;
  ibv_device** list = nullptr;
  DeviceList() {
    if (!verbs_library())
      throw Error(fmt::format("verbs: {}; install libibverbs (Debian: libibverbs1)",
                              verbs_library().why_not()));
    [[maybe_unused]] static const int refused = ibv_fork_init();
    list = ibv_get_device_list(&count);
  }
  ~DeviceList() {
    if (list) ibv_free_device_list(list);
  }
};

[[noreturn]] void refuse(const std::string& where, const char* what, int error,
                         const std::string& remedy) {
  throw Error(
      fmt::format("verbs: {}: {} failed: {}; {}", where, what, std::strerror(error), remedy));
}

// Decodes InfiniBand's one-bit PortInfo codes; 0: unknown.
template <class T, std::size_t kCodes>
T decoded(std::uint8_t code, const T (&values)[kCodes]) {
  const auto bit = static_cast<std::size_t>(std::countr_zero(code));
  return std::has_single_bit(code) && bit < kCodes ? values[bit] : 0;
}
constexpr double kLaneGbps[] = {2.5, 5, 10, 10, 14, 25, 50, 100};
constexpr int kLanes[] = {1, 4, 8, 12, 2};

int mtu_bytes(ibv_mtu mtu) { return 128 << static_cast<int>(mtu); }

// ---- a port on the wire --------------------------------------------------------------------

constexpr std::uint32_t kPortMagic = 0x7650'6f32;  // "vPo2"

struct WireGid {
  std::uint8_t kind, index;
  GidBytes bytes;
};
struct WirePort {
  std::uint32_t magic = kPortMagic;
  std::uint16_t lid = 0, mtu = 0;
  std::uint8_t ethernet = 0, ngids = 0;
  std::uint16_t pkey = 0;
  WireGid gids[kMostGids] = {};
};

}  // namespace

std::string VerbsPort::encode() const {
  WirePort wire;
  wire.lid = lid;
  wire.mtu = static_cast<std::uint16_t>(mtu);
  wire.ethernet = ethernet;
  wire.pkey = pkey;
  wire.ngids = static_cast<std::uint8_t>(std::min(gids.size(), kMostGids));
  for (std::size_t i = 0; i < wire.ngids; ++i)
    wire.gids[i] = {static_cast<std::uint8_t>(gids[i].kind),
                    static_cast<std::uint8_t>(gids[i].index), gids[i].bytes};
  return {reinterpret_cast<const char*>(&wire), sizeof wire};
}

VerbsPort VerbsPort::decode(std::string_view text) {
  WirePort wire;
  if (text.size() != sizeof wire)
    throw Error(
        fmt::format("verbs: the peer described its port in {} bytes, not in {}; run the "
                    "same build of weft at both ends",
                    text.size(), sizeof wire));
  std::memcpy(&wire, text.data(), sizeof wire);
  if (wire.magic != kPortMagic || wire.ngids > kMostGids)
    throw Error(
        "verbs: the peer's port description is invalid; run the same build of weft at both ends");
  VerbsPort port;
  port.lid = wire.lid;
  port.mtu = wire.mtu;
  port.ethernet = wire.ethernet != 0;
  port.pkey = wire.pkey;
  for (std::size_t i = 0; i < wire.ngids; ++i) {
    if (wire.gids[i].kind > static_cast<std::uint8_t>(GidKind::kRoce1)) continue;
    port.gids.push_back(
        {static_cast<GidKind>(wire.gids[i].kind), wire.gids[i].index, wire.gids[i].bytes});
  }
  return port;
}

std::vector<std::string> verbs_devices() {
  const DeviceList devices;
  std::vector<std::string> names;
  for (int i = 0; i < devices.count && devices.list; ++i)
    names.emplace_back(ibv_get_device_name(devices.list[i]));
  return names;
}

// ---- the device ----------------------------------------------------------------------------

VerbsDevice::VerbsDevice(const std::string& name, const VerbsSettings& settings)
    : name_(name), settings_(settings) {
  const DeviceList devices;
  for (int i = 0; i < devices.count && devices.list; ++i) {
    if (name != ibv_get_device_name(devices.list[i])) continue;
    errno = 0;
    context_ = ibv_open_device(devices.list[i]);
    if (!context_)
      refuse("device " + name, "ibv_open_device", errno ? errno : EIO,
             fmt::format("is /dev/infiniband/{} there and may this user open it?",
                         devices.list[i]->dev_name));
  }
  if (!context_) {
    // In a container sysfs may list the host's devices.
    std::error_code ignored;
    const bool shown = std::filesystem::exists("/sys/class/infiniband/" + name, ignored);
    const std::string why = shown ? sysfs::why_not_opened("/sys", "/dev", name) : "";
    if (!why.empty())
      throw Error(
          fmt::format("verbs: device {}: {}; start it with the host's devices "
                      "(--device=/dev/infiniband, or the RDMA device plugin), or say --transport "
                      "tcp",
                      name, why));
    const std::vector<std::string> present = verbs_devices();
    throw Error(fmt::format(
        "verbs: no device '{}'; {}", name,
        present.empty() ? "this host has none (`rdma link` lists them; is the driver loaded?)"
                        : fmt::format("present: {}", fmt::join(present, ", "))));
  }
  try {
    if (const int error = ibv_query_device(context_, &limits_))
      refuse(where(), "ibv_query_device", error, "is the driver loaded?");
    open_port();
    // Non-blocking: ibv_get_async_event() must not block poll().
    fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
    errno = 0;
    domain_ = ibv_alloc_pd(context_);
    if (!domain_) refuse(where(), "ibv_alloc_pd", errno, "look at dmesg");
    if (settings_.one_thread) make_thread_domain();
  } catch (...) {
    close();
    throw;
  }
}

VerbsDevice::~VerbsDevice() { close(); }

// If the device refuses either, domain_ with its locks is used.
void VerbsDevice::make_thread_domain() noexcept {
  ibv_td_init_attr thread{};
  thread_ = ibv_alloc_td(context_, &thread);
  if (!thread_) return;
  ibv_parent_domain_init_attr both{};
  both.pd = domain_;
  both.td = thread_;
  parent_ = ibv_alloc_parent_domain(context_, &both);
  if (!parent_) ibv_dealloc_td(std::exchange(thread_, nullptr));
}

void VerbsDevice::close() noexcept {
  if (parent_) ibv_dealloc_pd(parent_);
  if (thread_) ibv_dealloc_td(thread_);
  parent_ = nullptr;
  thread_ = nullptr;
  if (domain_) ibv_dealloc_pd(domain_);
  if (context_) ibv_close_device(context_);
  domain_ = nullptr;
  context_ = nullptr;
}

std::string VerbsDevice::where() const {
  return port_number_ ? fmt::format("device {} port {}", name_, port_number_) : "device " + name_;
}

bool VerbsDevice::next_report(VerbsReport& report) noexcept {
  ibv_async_event event{};
  if (ibv_get_async_event(context_, &event) != 0) return false;
  report = {};
  report.type = event.event_type;
  switch (scope_of(event.event_type)) {
    case VerbsScope::kPort:
      report.port = event.element.port_num;
      break;
    case VerbsScope::kQueuePair:
      report.pair = event.element.qp;
      break;
    default:
      break;
  }
  ibv_ack_async_event(&event);
  return true;
}

bool VerbsDevice::port_active() const noexcept {
  ibv_port_attr port{};
  return ibv_query_port(context_, static_cast<std::uint8_t>(port_number_), &port) == 0 &&
         port.state == IBV_PORT_ACTIVE;
}

void VerbsDevice::open_port() {
  ibv_port_attr port{};
  const auto query = [&](int number) {
    port = {};
    if (const int error = ibv_query_port(context_, static_cast<std::uint8_t>(number), &port))
      refuse(fmt::format("device {} port {}", name_, number), "ibv_query_port", error,
             fmt::format("the device has ports 1 to {}; WEFT_VERBS_PORT chooses one",
                         limits_.phys_port_cnt));
    return port.state == IBV_PORT_ACTIVE;
  };
  if (settings_.port > 0) port_number_ = settings_.port;
  if (port_number_ > 0) {
    query(port_number_);
  } else {
    for (int number = 1; number <= limits_.phys_port_cnt && port_number_ == 0; ++number)
      if (query(number)) port_number_ = number;
    if (port_number_ == 0) query(port_number_ = 1);
  }
  if (port.state != IBV_PORT_ACTIVE)
    throw StatusError({Code::kTransport,
                       fmt::format("verbs: {} is {}; bring the link up, or choose other devices "
                                   "with WEFT_RAILS",
                                   where(), ibv_port_state_str(port.state))});
  max_message_ = port.max_msg_sz;
  rate_gbps_ = decoded(port.active_speed, kLaneGbps) * decoded(port.active_width, kLanes);
  port_.lid = port.lid;
  port_.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  port_.mtu = mtu_bytes(port.active_mtu);
  if (settings_.mtu > port_.mtu)
    throw Error(
        fmt::format("verbs: WEFT_VERBS_MTU={} but {} has {}; raise the interface's MTU, or "
                    "lower the variable",
                    settings_.mtu, where(), port_.mtu));
  if (settings_.mtu) port_.mtu = settings_.mtu;
  join_partition(port.pkey_tbl_len);

  std::vector<ibv_gid_entry> entries(1024);
  const ssize_t n = ibv_query_gid_table(context_, entries.data(), entries.size(), 0);
  if (n < 0)
    refuse(where(), "ibv_query_gid_table", static_cast<int>(-n), "needs Linux 5.10 or newer");
  std::vector<Gid> table;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const ibv_gid_entry& entry = entries[i];
    if (entry.port_num != static_cast<std::uint32_t>(port_number_) || entry.gid_index > 255)
      continue;
    Gid gid;
    gid.index = static_cast<int>(entry.gid_index);
    std::memcpy(gid.bytes.data(), entry.gid.raw, gid.bytes.size());
    const GidType type = entry.gid_type == IBV_GID_TYPE_IB        ? GidType::kInfiniBand
                         : entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? GidType::kRoce2
                                                                  : GidType::kRoce1;
    gid.kind = kind_of(type, gid.bytes);
    table.push_back(gid);
  }
  if (settings_.gid_index >= 0) {
    const std::string all = describe(table);
    std::erase_if(table, [&](const Gid& g) { return g.index != settings_.gid_index; });
    if (table.empty())
      throw Error(fmt::format("verbs: WEFT_VERBS_GID_INDEX={} is not an entry of {}, which has: {}",
                              settings_.gid_index, where(), all));
  }
  port_.gids = candidates(std::move(table));
  if (port_.gids.empty() && port_.ethernet)
    throw Error(fmt::format("verbs: {} has no GID; give its interface an address", where()));
}

void VerbsDevice::join_partition(int entries) {
  std::vector<std::uint16_t> table;
  for (int i = 0; i < entries; ++i) {
    __be16 pkey = 0;
    if (ibv_query_pkey(context_, static_cast<std::uint8_t>(port_number_), i, &pkey) != 0) break;
    table.push_back(be16toh(pkey));
  }
  const int chosen = choose_pkey(table, static_cast<std::uint16_t>(settings_.pkey));
  if (chosen < 0 && settings_.pkey != 0)
    throw Error(
        fmt::format("verbs: WEFT_VERBS_PKEY={:#06x}: {} is not a member of it, but of {:#06x}; ask "
                    "who runs the fabric (its subnet manager)",
                    settings_.pkey, where(), fmt::join(table, ", ")));
  pkey_index_ = std::max(chosen, 0);
  port_.pkey = chosen < 0 ? kEveryPartition : table[static_cast<std::size_t>(chosen)];
}

// ---- memory --------------------------------------------------------------------------------

VerbsMemory::VerbsMemory(const VerbsDevice& device, void* data, std::size_t bytes, int access) {
  const int flags = access | device.relaxed();
  std::string gpu;
  if (on_gpu(data)) {
    NicMemory part = weft::device()->nic_memory(data, bytes);
    if (part.mapped) {
      region_ = ibv_reg_mr_iova(device.domain(), part.mapped, bytes,
                                reinterpret_cast<std::uint64_t>(data), flags);
      if (region_) return;
    }
    if (part.fd >= 0) {
      region_ = ibv_reg_dmabuf_mr(device.domain(), part.offset, bytes,
                                  reinterpret_cast<std::uint64_t>(data), part.fd, flags);
      if (!region_) part.why = fmt::format("ibv_reg_dmabuf_mr: {}", std::strerror(errno));
      ::close(part.fd);
      if (region_) return;
    }
    gpu = fmt::format(" of GPU memory (no dma-buf: {})", part.why);
  }
  errno = 0;
  region_ = ibv_reg_mr(device.domain(), data, bytes, static_cast<unsigned>(flags));
  if (region_) return;
  const int error = errno;
  const char* remedy =
      !gpu.empty()      ? "load the module nvidia_peermem, or use the driver's open kernel modules"
      : error == ENOMEM ? "raise the limit of locked memory (ulimit -l unlimited)"
      : error == EFAULT ? "the memory must be mapped, and writable to receive into it"
                        : "look at dmesg";
  refuse(device.where(), fmt::format("registering {} bytes{}", bytes, gpu).c_str(), error, remedy);
}

VerbsMemory::~VerbsMemory() {
  if (region_) ibv_dereg_mr(region_);
}

// ---- completion queues ---------------------------------------------------------------------

VerbsCq::VerbsCq(const VerbsDevice& device, int depth, bool channel) {
  depth_ = std::min(depth, device.limits().max_cqe);
  errno = 0;
  if (channel) {
    channel_ = ibv_create_comp_channel(device.context());
    if (!channel_) refuse(device.where(), "ibv_create_comp_channel", errno, "raise `ulimit -n`");
    // Non-blocking: ibv_get_cq_event() must not block disarm().
    fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  }
  if (device.one_thread()) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = static_cast<std::uint32_t>(depth_);
    attributes.cq_context = this;
    attributes.channel = channel_;
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    attributes.parent_domain = device.queue_domain();
    if (ibv_cq_ex* const made = ibv_create_cq_ex(device.context(), &attributes))
      cq_ = ibv_cq_ex_to_cq(made);
  }
  if (!cq_) cq_ = ibv_create_cq(device.context(), depth_, this, channel_, 0);
  if (cq_) return;
  const int error = errno;
  if (channel_) ibv_destroy_comp_channel(channel_);
  refuse(device.where(), fmt::format("a completion queue of {} entries", depth_).c_str(), error,
         "lower WEFT_VERBS_SEND_DEPTH, WEFT_VERBS_SLOTS or WEFT_VERBS_QPS");
}

VerbsCq::~VerbsCq() {
  if (unacknowledged_) ibv_ack_cq_events(cq_, unacknowledged_);
  ibv_destroy_cq(cq_);
  if (channel_) ibv_destroy_comp_channel(channel_);
}

bool VerbsCq::arm() noexcept { return ibv_req_notify_cq(cq_, 0) == 0; }

void VerbsCq::disarm() noexcept {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (channel_ && ibv_get_cq_event(channel_, &cq, &context) == 0) ++unacknowledged_;
  // Acknowledging takes a lock, so acknowledge events in batches.
  if (unacknowledged_ < 64) return;
  ibv_ack_cq_events(cq_, unacknowledged_);
  unacknowledged_ = 0;
}

}  // namespace weft
