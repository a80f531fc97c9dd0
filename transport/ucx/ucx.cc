// Sets up and tears down the ucx transport: context, worker, exchange of addresses. ucx/datapath.cc
// contains the datapath.
#include "transport/ucx/ucx.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include "topo/base/log.h"
#include "topo/base/thread.h"
#include "topo/base/yield.h"
#include "transport/job/exchange.h"
#include "transport/loaded/loaded.h"
#include "transport/memory/crc32c.h"
#include "transport/ucx/config.h"
#include "transport/ucx/transport.h"

namespace weft {
namespace {

constexpr int kMaxRanks = 1 << 16;  // the source rank has 16 bits of the UCP tag
constexpr std::chrono::milliseconds kFlushTimeout{1000};

void check(ucs_status_t status, const std::string& device, const char* what) {
  if (status == UCS_OK) return;
  throw Error(
      fmt::format("ucx: device {}: {} failed: {}; is the device up? `ucx_info -d` lists "
                  "what UCX can use",
                  device, what, ucs_status_string(status)));
}

}  // namespace

std::string why_no_ucx() { return ucx_library().why_not(); }

std::unique_ptr<Transport> make_ucx_transport(Job& job, const Topology& topology, const Nic& rail) {
  return std::make_unique<UcxTransport>(job, topology, rail);
}

UcxTransport::UcxTransport(Job& job, const Topology& topology, const Nic& rail)
    : rank_(job.rank()),
      tag_bits_(64 - std::max<int>(1, std::bit_width(static_cast<unsigned>(job.size() - 1)))),
      rail_(rail),
      device_(ucx_device(rail)),
      peers_(static_cast<std::size_t>(job.size())) {
  const std::vector<std::string> all = exchange(job, topology, [&] {
    if (job.size() > kMaxRanks)
      throw Error(
          fmt::format("ucx: {} ranks in the job; at most {} are possible", job.size(), kMaxRanks));
    set_up(rail, job.size());
    return worker_address();
  });
  for (Rank r = 0; r < job.size(); ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    peer.owner = this;
    peer.rank = r;
    peer.where = rank_on_host(topology, r);
    if (!take_address(peer, all.at(static_cast<std::size_t>(r))))
      throw Error(
          peer.where +
          ": ucx: its address is truncated or corrupted; run the same build of weft on all ranks");
  }
  log().debug("ucx: rank {} ready on device {}", rank_, device_);
}

void UcxTransport::set_up(const Nic& rail, int nranks) {
  if (device_.empty()) throw Error("ucx: the rail has no device name; set WEFT_RAILS");
  const UcpConfig config = ucx_config(rail);

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<std::size_t>(nranks);
  const SignalsBlocked blocked;  // UCX starts a thread
  ucp_context_h context = nullptr;
  check(ucp_init(&params, config.get(), &context), device_, "ucp_init");
  context_.reset(context);
  ucp_context_attr_t has{};
  has.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  check(ucp_context_query(context, &has), device_, "ucp_context_query");
  cuda_ = (has.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0;

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // One thread at a time uses the worker, but not always the same thread.
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &worker_params, &worker), device_, "ucp_worker_create");
  worker_.reset(worker);
  check(ucp_worker_get_efd(worker, &event_fd_), device_, "ucp_worker_get_efd");
}

std::string UcxTransport::worker_address() const {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  check(ucp_worker_get_address(worker_.get(), &address, &length), device_,
        "ucp_worker_get_address");
  const std::string_view bytes(reinterpret_cast<const char*>(address), length);
  const std::uint32_t sum = crc32c(bytes.data(), bytes.size());
  std::string text(reinterpret_cast<const char*>(&sum), sizeof sum);
  text += bytes;
  ucp_worker_release_address(worker_.get(), address);
  return text;
}

// Checks length and integrity: UCX takes no length argument, so it would read past the end of a
// truncated address.
bool UcxTransport::take_address(Peer& peer, std::string_view travelled) {
  std::uint32_t sum = 0;
  if (travelled.size() <= sizeof sum) return false;
  std::memcpy(&sum, travelled.data(), sizeof sum);
  travelled.remove_prefix(sizeof sum);
  if (crc32c(travelled.data(), travelled.size()) != sum) return false;
  peer.address = travelled;
  return true;
}

// Completed sends may still be in UCX's buffers, so the destructor flushes them before the sockets
// close. Ignores peers that do not accept them in time.
UcxTransport::~UcxTransport() {
  if (!worker_) return;
  std::vector<void*> flushing;
  for (Peer& peer : peers_) {
    if (peer.ep == nullptr || !peer.failure.ok()) continue;
    const ucp_request_param_t param{};
    void* handle = ucp_ep_flush_nbx(peer.ep, &param);
    if (UCS_PTR_IS_PTR(handle)) flushing.push_back(handle);
  }
  const auto deadline = std::chrono::steady_clock::now() + kFlushTimeout;
  while (!flushing.empty() && std::chrono::steady_clock::now() < deadline) {
    ucp_worker_progress(worker_.get());
    std::erase_if(flushing, [](void* handle) {
      if (ucp_request_check_status(handle) == UCS_INPROGRESS) return false;
      ucp_request_free(handle);
      return true;
    });
    yield_core();
  }
  if (!flushing.empty()) {
    log().debug("ucx: device {}: {} peers did not take the last bytes within {} ms", device_,
                flushing.size(), kFlushTimeout.count());
  }
  for (void* handle : flushing) ucp_request_free(handle);  // ends with its endpoint
  abandon("the rail is closed");
}

}  // namespace weft
