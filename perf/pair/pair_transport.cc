// Runs a pair over a Transport (shm, ucx, tcp), and generates the payload of all kinds of pairs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <vector>

#include "perf/cli/bytes.h"
#include "perf/pair/pair_link.h"
#include "topo/base/random.h"
#include "transport/launch/failures.h"
#include "transport/transport.h"

namespace weft {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMemory = 256 << 20;  // memory for outstanding messages per direction

class TransportPair final : public PairLink {
 public:
  TransportPair(const PairOptions& options, Transport& transport, Rank me, Rank peer,
                std::size_t most_bytes)
      : o_(options),
        transport_(transport),
        me_(me),
        peer_(peer),
        stride_((std::max<std::size_t>(most_bytes, 1) + kPage - 1) / kPage * kPage),
        depth_(
            static_cast<int>(std::clamp<std::size_t>(kMemory / stride_, 2,
                                                     static_cast<std::size_t>(options.depth) + 1) -
                             1)),
        key_(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32),
        source_(stride_),
        target_(stride_ * static_cast<std::size_t>(depth_ + 1)) {}
  ~TransportPair() override { transport_.cancel(test_); }

  std::string offer() override { return nlohmann::json(key_).dump(); }
  void connect(const std::string& theirs) override { their_key_ = nlohmann::json::parse(theirs); }
  std::string path() const override {
    return fmt::format("{} rank {} to rank {}", transport_.caps().name, me_, peer_);
  }
  PairUse use() const override { return {.depth = depth_}; }
  bool one_sided() const override { return false; }
  std::optional<std::uint64_t> moved_bytes() const override { return transport_.moved_bytes(); }

  void prepare(const PairRole& role) override {
    transport_.cancel(test_);  // unmatched receives
    ++test_;
    bytes_ = role.bytes;
    latency_ = role.latency;
    starts_ = role.sends;
    settling_ = false;
    settled_ = 0;
    out_ = 0;
    sent_ = arrived_ = posted_recvs_ = 0;
    total_ = kUnknown;
    lowest_ = 0;
    came_.assign(static_cast<std::size_t>(depth_ + 1), false);
    last_posted_ = confirmed_ = answered_ = answer_over_ = false;
    wrong_.clear();
    fill_source(o_, source_.data(), bytes_, key_ ^ bytes_);
    expected_.resize(bytes_);
    fill_pattern(expected_.data(), bytes_, their_key_ ^ bytes_);
    std::fill(target_.begin(), target_.end(), std::byte{0});
    if (role.receives || latency_) {
      receive(kEnd, 0, &their_total_, sizeof their_total_);
      for (int i = 0; i < (latency_ ? 1 : depth_); ++i) receive_next();
    }
    if (role.sends && !latency_) receive(kConfirm, 0, &confirmation_, sizeof confirmation_);
  }

  int post(int most) override {
    const int n = std::min({most, o_.list, depth_ - out_});
    for (int i = 0; i < n; ++i) send(kData, sent_++, source_.data(), bytes_);
    out_ += std::max(n, 0);
    flush();
    return std::max(n, 0);
  }
  int last() const override { return 1; }
  int post_last() override {
    if (out_ >= depth_) return 0;
    send(kData, sent_++, source_.data(), bytes_);
    ++out_;
    my_total_ = sent_;
    send(kEnd, 0, &my_total_, sizeof my_total_);
    last_posted_ = true;
    flush();
    return 1;
  }

  // The last message is treated as sent when the other end confirms that all messages have arrived.
  PairProgress poll() override {
    PairProgress progress;
    step(progress);
    if (last_posted_ && confirmed_ && out_ == 1) {
      out_ = 0;
      ++progress.sent;
      last_posted_ = false;
    }
    if (total_ != kUnknown && arrived_ >= total_) {
      if (!answered_) {
        answered_ = true;
        send(kConfirm, 0, &answer_, sizeof answer_);
        flush();
      }
      progress.ended = answer_over_;
    }
    return progress;
  }

  void ping(std::uint64_t turn) override {
    send(kData, turn - 1, source_.data(), bytes_);
    ++out_;
    flush();
  }
  bool arrived(std::uint64_t turn) override {
    PairProgress progress;
    step(progress);
    // This end's message may still be in flight: its memory is never written.
    return arrived_ >= turn;
  }
  bool settled() override {
    if (!settling_) {
      settling_ = true;
      confirmed_ = answer_over_ = false;
      if (starts_) {
        send(kConfirm, settled_++, &answer_, sizeof answer_);
        flush();
      } else {
        receive(kConfirm, settled_++, &confirmation_, sizeof confirmation_);
      }
    }
    PairProgress progress;
    step(progress);
    settling_ = !(starts_ ? answer_over_ : confirmed_);
    return !settling_;
  }
  std::string check() override { return wrong_; }

 private:
  enum Kind : std::uint32_t { kData, kEnd, kConfirm };
  static constexpr std::uint64_t kUnknown = UINT64_MAX;
  static constexpr std::uint32_t kRecvBit = 1U << 31;
  static constexpr int kKindShift = 29, kSequenceBits = 29;

  // 48 bits, the limit of UCX: test, kind, and message number.
  std::uint64_t tag(Kind kind, std::uint64_t sequence) const {
    return std::uint64_t{test_ & 0xff} << 40 | std::uint64_t{kind} << 38 |
           (sequence & ((std::uint64_t{1} << 38) - 1));
  }
  std::uint64_t id(Kind kind, std::uint64_t sequence, bool recv) const {
    return std::uint64_t{test_} << 32 | (recv ? kRecvBit : 0U) | kind << kKindShift |
           (sequence & ((1U << kSequenceBits) - 1));
  }
  void send(Kind kind, std::uint64_t sequence, void* data, std::size_t bytes) {
    Transfer t;
    t.peer = peer_;
    t.tag = tag(kind, sequence);
    t.data = data;
    t.bytes = bytes;
    t.id = id(kind, sequence, false);
    batch_.push_back(t);
  }
  void receive(Kind kind, std::uint64_t sequence, void* data, std::size_t bytes) {
    Transfer t;
    t.kind = Transfer::Kind::kRecv;
    t.peer = peer_;
    t.tag = tag(kind, sequence);
    t.data = data;
    t.bytes = bytes;
    t.id = id(kind, sequence, true);
    batch_.push_back(t);
    flush();
  }
  void receive_next() {
    const std::uint64_t n = posted_recvs_++;
    receive(kData, n, slot(n), bytes_);
  }
  std::byte* slot(std::uint64_t n) {
    return target_.data() + stride_ * (n % static_cast<std::uint64_t>(depth_ + 1));
  }
  void flush() {
    if (!batch_.empty()) transport_.post(batch_);
    batch_.clear();
  }

  void step(PairProgress& progress) {
    std::array<Completion, 64> done;
    const std::size_t n = transport_.poll(done);
    for (const Completion& c : std::span(done).first(n)) {
      if (c.id >> 32 != test_) continue;
      if (c.code != Code::kOk)
        throw Error(
            fmt::format("{}: {} bytes: {}", path(), bytes_, transport_.cause(peer_).to_string()));
      const auto low = static_cast<std::uint32_t>(c.id);
      const auto kind = static_cast<Kind>((low & ~kRecvBit) >> kKindShift);
      const bool recv = (low & kRecvBit) != 0;
      if (kind == kData && recv) {
        received(lowest_ + ((low - lowest_) & ((1U << kSequenceBits) - 1)));
        ++progress.arrived;
      } else if (kind == kData) {
        // Keep one completion back until the other end has confirmed the last message.
        if (!last_posted_ || out_ > 1) {
          --out_;
          ++progress.sent;
        }
      } else if (kind == kEnd && recv) {
        total_ = their_total_;
      } else if (kind == kConfirm) {
        (recv ? confirmed_ : answer_over_) = true;
      }
    }
    // A stream keeps `depth_` receives posted, a ping-pong keeps one.
    const std::uint64_t ahead = latency_ ? 1 : static_cast<std::uint64_t>(depth_);
    // The message with the total may overtake others.
    while (receiving_ahead() < ahead && posted_recvs_ < total_) receive_next();
  }
  std::uint64_t receiving_ahead() const {
    return posted_recvs_ == 0 ? kUnknown : posted_recvs_ - lowest_;
  }

  void received(std::uint64_t number) {
    ++arrived_;
    // Messages may arrive in any order; a slot is reused when all earlier ones have arrived.
    came_[number % came_.size()] = true;
    for (; came_[lowest_ % came_.size()]; ++lowest_) came_[lowest_ % came_.size()] = false;
    if (!o_.validate || !wrong_.empty() || bytes_ == 0) return;
    std::byte* const data = slot(number);
    if (std::memcmp(data, expected_.data(), bytes_) != 0)
      wrong_ =
          fmt::format("message {}: {}", number, compare_pattern(data, bytes_, their_key_ ^ bytes_));
    std::fill_n(data, bytes_, std::byte{0});
  }

  const PairOptions o_;
  Transport& transport_;
  Rank me_, peer_;
  std::size_t stride_;
  int depth_;
  std::uint64_t key_, their_key_ = 0;
  std::vector<std::byte> source_, target_, expected_;
  std::vector<Transfer> batch_;
  std::string wrong_;

  std::uint32_t test_ = 1;
  std::size_t bytes_ = 0;
  bool latency_ = false;
  int out_ = 0;
  std::uint64_t sent_ = 0, arrived_ = 0, posted_recvs_ = 0;
  std::uint64_t total_ = kUnknown, my_total_ = 0, their_total_ = 0, confirmation_ = 0, answer_ = 0;
  std::uint64_t lowest_ = 0;  // the first message that has not arrived
  std::vector<bool> came_;
  bool last_posted_ = false, confirmed_ = false;  // state of the sent stream
  bool answered_ = false, answer_over_ = false;   // state of the received stream
  bool starts_ = false, settling_ = false;        // state of a ping-pong
  std::uint64_t settled_ = 0;                     // batches of ping-pongs
};

}  // namespace

std::unique_ptr<PairLink> make_transport_pair(const PairOptions& options, Transport& transport,
                                              Rank me, Rank peer, std::size_t most_bytes) {
  try {
    return std::make_unique<TransportPair>(options, transport, me, peer, most_bytes);
  } catch (const std::bad_alloc&) {
    throw UsageError(
        fmt::format("-s {}: no memory for messages of this size", format_bytes(most_bytes)));
  }
}

void fill_pattern(std::byte* data, std::size_t bytes, std::uint64_t key) {
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = splitmix64(key + i);
    std::memcpy(data + i, &word, std::min(sizeof word, bytes - i));
  }
}

void fill_source(const PairOptions& options, std::byte* data, std::size_t bytes,
                 std::uint64_t key) {
  fill_pattern(data, bytes, key);
  // Spare the last byte, which holds the turn in a latency test.
  if (bytes > 0 && bytes >= options.damage_from) data[(bytes - 1) / 2] ^= std::byte{0x10};
}

std::string compare_pattern(const std::byte* data, std::size_t bytes, std::uint64_t key) {
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = splitmix64(key + i);
    const std::size_t n = std::min(sizeof word, bytes - i);
    if (std::memcmp(data + i, &word, n) == 0) continue;
    std::array<std::byte, sizeof word> expected{};
    std::memcpy(expected.data(), &word, sizeof word);
    for (std::size_t k = 0; k < n; ++k) {
      if (data[i + k] == expected[k]) continue;
      return fmt::format("byte {} is {:#04x}, expected {:#04x}", i + k,
                         static_cast<unsigned>(data[i + k]), static_cast<unsigned>(expected[k]));
    }
  }
  return "";
}

}  // namespace weft
