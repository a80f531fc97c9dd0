// Sets up a pair over RDMA verbs, and checks its payload: writes, sends and reads as in perftest.
#include "perf/pair/verbs_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kVerbsPage = 4096;
constexpr std::size_t kCheckedBytes = 64 << 20;  // receive buffers, if all bytes are compared
constexpr int kReadsUnderWay = 16;

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}
std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned char byte = 0;  // not hex: VerbsPort::decode() will report it
    std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace

VerbsSettings settings_of(const PairOptions& o) {
  VerbsSettings s = verbs_settings();
  if (o.device_port) s.port = o.device_port;
  if (o.gid_index >= 0) s.gid_index = o.gid_index;
  if (o.mtu) s.mtu = o.mtu;
  if (o.traffic_class >= 0) s.traffic_class = o.traffic_class;
  if (o.service_level >= 0) s.service_level = o.service_level;
  return s;
}

VerbsPair::VerbsPair(const PairOptions& options, const Nic& rail, std::size_t most_bytes)
    : o_(options),
      device_(rail.name, settings_of(options)),
      stride_((std::max<std::size_t>(most_bytes, 1) + kVerbsPage - 1) / kVerbsPage * kVerbsPage),
      sends_(device_, o_.depth * o_.qps + 1, o_.events),
      recvs_(device_, std::max(kRecvDepth, send_ ? o_.depth : 0) * o_.qps + 1, o_.events),
      key_(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32) {
  if (most_bytes > device_.max_message())
    throw Error(fmt::format("-s {}: {} supports messages of at most {} bytes", most_bytes,
                            device_.where(), device_.max_message()));
  const int most = device_.limits().max_qp_wr;
  depth_ = std::min({o_.depth, most, (sends_.depth() - 1) / o_.qps});
  if (send_) {  // no more outstanding sends than posted receives
    recv_depth_ = std::min({std::max(kRecvDepth, o_.depth), most, (recvs_.depth() - 1) / o_.qps});
    if (o_.validate && o_.gpu < 0) {
      const auto fit = static_cast<int>(std::clamp<std::size_t>(kCheckedBytes / stride_, 8, 32768));
      slots_ = recv_depth_ = std::min(recv_depth_, fit);
    }
    depth_ = std::min(depth_, recv_depth_);
  }
  allocate();
  VerbsQpOptions q;
  q.send_depth = depth_;
  q.recv_depth = send_ ? recv_depth_ : 1;
  q.inline_bytes = read_ ? 0 : o_.inline_or_default();
  q.reads = std::min(
      {kReadsUnderWay, device_.limits().max_qp_rd_atom, device_.limits().max_qp_init_rd_atom});
  inline_bytes_ = q.inline_bytes;
  for (int i = 0; i < o_.qps; ++i) {
    if (o_.flow_label > 0) q.flow_label = o_.flow_label + static_cast<std::uint32_t>(i);
    qps_.push_back(std::make_unique<VerbsQp>(device_, sends_, recvs_, q));
    inline_bytes_ = std::min(inline_bytes_, qps_.back()->inline_bytes());
  }
  queues_.resize(qps_.size());
}

std::string VerbsPair::offer() {
  nlohmann::json j = {{"port", to_hex(device_.port().encode())},
                      {"address", reinterpret_cast<std::uint64_t>(registered_)},
                      {"rkey", memory_->rkey()},
                      {"key", key_}};
  for (const auto& qp : qps_) j["qps"].push_back({qp->name().number, qp->name().psn});
  return j.dump();
}

void VerbsPair::connect(const std::string& theirs) try {
  const auto j = nlohmann::json::parse(theirs);
  const VerbsPath path =
      verbs_path(device_.port(), VerbsPort::decode(from_hex(j.at("port"))), device_.where());
  path_ = fmt::format("{} {}", device_.where(), weft::to_string(path));
  for (std::size_t i = 0; i < qps_.size(); ++i) {
    const auto& name = j.at("qps").at(i);
    qps_[i]->connect(path, {name.at(0), name.at(1)});
  }
  their_address_ = j.at("address");
  their_rkey_ = j.at("rkey");
  their_key_ = j.at("key");
} catch (const nlohmann::json::exception& e) {
  throw Error(fmt::format(
      "the other end offers no valid queue pairs ({}); run the same build of weft at both ends",
      e.what()));
}

void VerbsPair::prepare(const PairRole& role) {
  bytes_ = role.bytes;
  latency_ = role.latency;
  receives_ = role.receives;
  arrived_ = ended_ = 0;
  wrong_.clear();
  // A latency test waits for each read, so each one is signaled.
  moderation_ = latency_ && read_ ? 1 : std::min(o_.moderation_for(bytes_), depth_);
  expected_.resize(bytes_);
  fill_pattern(expected_.data(), bytes_, their_key_ ^ bytes_);
  for (int q = 0; q < o_.qps; ++q) fill_source(o_, at(source(q)), bytes_, key_ ^ bytes_);
  std::memset(host_.get() + target(0, 0), 0, stride_ * static_cast<std::size_t>(o_.qps * slots_));
  if (mirror_) mirror_->upload();
  if (!send_) return;
  // Receives of the previous test are still posted, and fit messages of all sizes.
  for (int q = 0; q < o_.qps; ++q) {
    for (int i = queues_[static_cast<std::size_t>(q)].receives; i < recv_depth_; ++i)
      spare_.push_back({q, i % slots_});
    queues_[static_cast<std::size_t>(q)].receives = recv_depth_;
  }
  post_receives();
}

void VerbsPair::allocate() {
  const std::size_t bytes = stride_ * static_cast<std::size_t>(o_.qps * (1 + slots_));
  host_.reset(static_cast<unsigned char*>(std::aligned_alloc(kVerbsPage, bytes)));
  if (!host_) throw Error(fmt::format("no memory for {} bytes of messages: lower -s or -q", bytes));
  std::memset(host_.get(), 0, bytes);
  registered_ = reinterpret_cast<std::byte*>(host_.get());
  if (o_.gpu >= 0) {
    mirror_ = std::make_unique<DeviceMirror>(o_.gpu, host_.get(), bytes);
    registered_ = reinterpret_cast<std::byte*>(mirror_->at(host_.get()));
  }
  try {
    memory_ = std::make_unique<VerbsMemory>(
        device_, registered_, bytes,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  } catch (const Error& e) {
    if (o_.gpu < 0) throw;
    throw Error(fmt::format("--use_cuda {}: {}", o_.gpu, e.what()));
  }
}

// ---- received bytes --------------------------------------------------------------------------

std::string VerbsPair::check() {
  if (!o_.validate || !wrong_.empty()) return wrong_;
  if (send_ && !mirror_) return wrong_;  // every message was compared
  const bool mine = read_ ? sent_any_ : receives_;
  if (!mine && !(latency_ && mirror_)) return wrong_;
  if (latency_ && !read_ && !mirror_) return wrong_;  // every turn was compared
  if (mirror_) mirror_->download();
  for (int q = 0; q < o_.qps && wrong_.empty(); ++q)
    wrong_ = compare_pattern(at(target(q, 0)), bytes_, their_key_ ^ bytes_);
  return wrong_;
}

// In a latency test, the last byte holds the turn.
bool VerbsPair::same(const std::byte* data, std::uint64_t turn) const {
  const std::size_t whole = latency_ ? bytes_ - 1 : bytes_;
  return std::memcmp(data, expected_.data(), whole) == 0 &&
         (!latency_ || data[whole] == stamp(turn));
}
void VerbsPair::compare(const std::byte* data, std::uint64_t message) {
  if (!wrong_.empty() || same(data, message)) return;
  const std::size_t whole = latency_ ? bytes_ - 1 : bytes_;
  const std::string where = compare_pattern(data, whole, their_key_ ^ bytes_);
  wrong_ = fmt::format("message {}: {}", message, where.empty() ? "its last byte" : where);
}
void VerbsPair::compare_late(const std::byte* data, std::uint64_t turn) {
  if (!wrong_.empty()) return;
  const auto end = Clock::now() + std::chrono::milliseconds(100);
  while (!same(data, turn) && Clock::now() < end)
    std::atomic_signal_fence(std::memory_order_seq_cst);
  compare(data, turn);
}

std::unique_ptr<PairLink> make_verbs_pair(const PairOptions& options, const Nic& rail,
                                          std::size_t most_bytes) {
  return std::make_unique<VerbsPair>(options, rail, most_bytes);
}

}  // namespace weft
