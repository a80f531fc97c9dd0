// The conformance suite of the Transport interface. Its cases are in conformance_*.cc, compiled
// once; a test program of a transport includes this file and instantiates them with its factories:
//
//   INSTANTIATE_TEST_SUITE_P(Sim, Conformance, ::testing::ValuesIn(makers()), maker_name);
//
// Cases that a transport does not support are skipped by its capabilities; without data, contents
// are not checked. Tags stay below 2^48. Tags of canceled transfers are not reused.
//
// This header has the basis of the cases: endpoints made by a factory, polled by the test, with a
// deadline on every wait; guarded buffers; patterns that identify their message.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/memory/memory.h"
#include "transport/offers.h"

namespace weft::testing {

inline constexpr auto kDeadline = std::chrono::seconds(60);  // of every wait: fail, do not hang

// n connected transports in this process.
struct Endpoints {
  std::shared_ptr<void> below;  // jobs, a fabric
  std::vector<std::unique_ptr<Transport>> ends;
  std::function<void()> idle;      // called if no endpoint had anything to report (virtual time)
  std::function<void(Rank)> kill;  // empty: not supported
  bool threads = true;             // each may be driven by its own thread

  Endpoints() = default;
  Endpoints(Endpoints&&) = default;
  Endpoints& operator=(Endpoints&&) = default;
  ~Endpoints() {  // all at the same time, like ranks
    std::vector<std::thread> enders;
    for (auto& end : ends) {
      if (threads) enders.emplace_back([&end] { end.reset(); });
    }
    for (std::thread& t : enders) t.join();
  }
};

// A factory, and its name in test names.
struct Maker {
  std::string name;
  std::function<Endpoints(int n)> make;
};
inline void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

// For transports with collective set-up: make(job, rank) runs concurrently for all ranks.
template <class Make>
Endpoints make_in_threads(int n, Make make) {
  auto jobs = std::make_shared<std::vector<std::unique_ptr<Job>>>(local_jobs(n));
  Endpoints out;
  out.below = jobs;
  out.ends.resize(static_cast<std::size_t>(n));
  std::vector<std::string> errors(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < out.ends.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        out.ends[r] = make(*(*jobs)[r], static_cast<Rank>(r));
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& e : errors) {
    if (!e.empty()) throw Error(e);
  }
  return out;
}

// n ranks on one host and machine, one rail over the loopback device.
inline Topology one_host(int n) {
  Place place;
  place.host = place.machine = "h0";
  Nic lo;
  lo.name = lo.netdev = "lo";
  lo.address = "127.0.0.1";
  lo.up = true;
  place.rails = {lo};
  return Topology(std::vector<Place>(static_cast<std::size_t>(n), place));
}

inline std::uint64_t pattern_word(std::uint64_t seed, std::size_t i) {
  std::uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + i;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

enum class Memory { kMalloc, kAlloc };

// A buffer inside a larger allocation, between guard bytes.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, Memory memory = Memory::kMalloc, std::size_t offset = 0)
      : bytes_(bytes),
        whole_(bytes + offset + 2 * kGuard),
        begin_(kGuard + offset),
        memory_(memory == Memory::kAlloc ? alloc(whole_) : std::malloc(whole_),
                memory == Memory::kAlloc ? &weft::free : &std::free) {
    std::memset(memory_.get(), kClean, whole_);
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()) + begin_; }
  std::size_t bytes() const { return bytes_; }
  void wipe() { std::memset(data(), kClean, bytes_); }
  bool clean() const { return same(begin_, begin_ + bytes_); }
  bool guards_intact() const { return same(0, begin_) && same(begin_ + bytes_, whole_); }

  void fill(std::uint64_t seed) {
    for (std::size_t at = 0, i = 0; at < bytes_; at += 8, ++i) {
      const std::uint64_t word = pattern_word(seed, i);
      std::memcpy(data() + at, &word, std::min<std::size_t>(8, bytes_ - at));
    }
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr int kClean = 0x5c;
  bool same(std::size_t from, std::size_t to) const {
    const auto* p = static_cast<const unsigned char*>(memory_.get());
    for (std::size_t i = from; i < to; ++i) {
      if (p[i] != kClean) return false;
    }
    return true;
  }
  std::size_t bytes_, whole_, begin_;
  std::unique_ptr<void, void (*)(void*)> memory_;
};

// Reports where bytes first differ from fill(seed).
inline ::testing::AssertionResult has_pattern(const void* data, std::size_t bytes,
                                              std::uint64_t seed) {
  const auto* p = static_cast<const std::byte*>(data);
  for (std::size_t at = 0, i = 0; at < bytes; at += 8, ++i) {
    const std::uint64_t word = pattern_word(seed, i);
    if (std::memcmp(p + at, &word, std::min<std::size_t>(8, bytes - at)) != 0) {
      return ::testing::AssertionFailure()
             << "bytes from " << at << " of " << bytes << " are not those of message " << seed;
    }
  }
  return ::testing::AssertionSuccess();
}

// One transport and the state of its transfers.
class End {
 public:
  explicit End(Transport& transport) : transport_(&transport), caps_(transport.caps()) {}

  Transport& transport() { return *transport_; }
  const Caps& caps() const { return caps_; }

  // Generates the id, below `id_high`.
  std::uint64_t post(Transfer::Kind kind, Rank peer, std::uint64_t tag, void* data,
                     std::size_t bytes, std::uint32_t id_high = 1, bool streaming = false,
                     const Head* head = nullptr) {
    const std::uint64_t id = std::uint64_t{id_high} << 32 | next_++;
    const Transfer t{.kind = kind,
                     .streaming = streaming,
                     .peer = peer,
                     .tag = tag,
                     .data = caps_.phantom || kind == Transfer::Kind::kView ? nullptr : data,
                     .bytes = bytes,
                     .id = id,
                     .head = head};
    open_.emplace(id, peer);
    transport_->post({&t, 1});
    return id;
  }
  std::uint64_t post_with_head(Transfer::Kind kind, Rank peer, std::uint64_t tag, void* data,
                               std::size_t bytes, const Head& head, std::uint32_t id_high = 1) {
    return post(kind, peer, tag, data, bytes, id_high, false, &head);
  }
  std::uint64_t send(Rank peer, std::uint64_t tag, const Buffer& b, std::uint32_t id_high = 1) {
    return post(Transfer::Kind::kSend, peer, tag, b.data(), b.bytes(), id_high);
  }
  std::uint64_t recv(Rank peer, std::uint64_t tag, const Buffer& b, std::uint32_t id_high = 1) {
    return post(Transfer::Kind::kRecv, peer, tag, b.data(), b.bytes(), id_high);
  }
  void cancel(std::uint32_t id_high) {
    transport_->cancel(id_high);
    std::erase_if(open_, [&](const auto& t) { return t.first >> 32 == id_high; });
  }

  // Polls once, for up to `room` completions. Unexpected completions are failures.
  std::size_t poll(std::size_t room = 16) {
    Completion out[16];
    const std::size_t n = transport_->poll({out, room});
    EXPECT_LE(n, room);
    for (std::size_t i = 0; i < n; ++i) {
      const auto it = open_.find(out[i].id);
      if (it == open_.end()) {
        ADD_FAILURE() << "completion of " << std::hex << out[i].id << ", which is not under way";
        continue;
      }
      if (out[i].code != Code::kOk && failed_.empty()) {
        failed_ = std::string(name(out[i].code)) + ", transfer with rank " +
                  std::to_string(it->second) +
                  "; cause: " + transport_->cause(it->second).to_string();
      }
      open_.erase(it);
      done_[out[i].id] = out[i];
    }
    return n;
  }
  bool done(std::uint64_t id) const { return done_.contains(id); }
  bool idle() const { return open_.empty(); }
  std::size_t open() const { return open_.size(); }
  const Completion& result(std::uint64_t id) const { return done_.at(id); }
  // The first failed transfer, as text; empty if none failed.
  std::string failed() const { return failed_; }
  bool all_ok() const { return failed_.empty(); }
  // Cancels all transfers, so that no buffer is used any more.
  void give_up() {
    while (!open_.empty()) cancel(static_cast<std::uint32_t>(open_.begin()->first >> 32));
  }
  // As above, for a thread that drives only this end.
  bool wait_idle() {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!idle()) {
      if (poll() > 0) continue;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  Transport* transport_;
  Caps caps_;
  std::uint32_t next_ = 1;
  std::map<std::uint64_t, Rank> open_;  // id -> peer
  std::string failed_;
  std::map<std::uint64_t, Completion> done_;
};

// All ends, polled in turn by the test.
class Net {
 public:
  explicit Net(Endpoints endpoints) : below_(std::move(endpoints)) {
    for (const auto& t : below_.ends) ends_.emplace_back(*t);
  }
  int size() const { return static_cast<int>(ends_.size()); }
  End& operator[](Rank r) { return ends_.at(static_cast<std::size_t>(r)); }
  Endpoints& endpoints() { return below_; }
  bool phantom() const { return ends_.front().caps().phantom; }

  // Sends a message between all pairs. Tests in which a transport may close a connection call it
  // first: UCX 1.13 aborts the process of a peer whose connection breaks during its set-up
  // (github.com/openucx/ucx/pull/8175).
  ::testing::AssertionResult connect() {
    Buffer from(8), to(8);
    for (Rank a = 0; a < size(); ++a) {
      for (Rank b = 0; b < size(); ++b) {
        if (a == b) continue;
        (*this)[a].send(b, 1u << 30, from);
        (*this)[b].recv(a, 1u << 30, to);
      }
    }
    return finish();
  }

  std::size_t poll_all(std::size_t room = 16) {
    std::size_t n = 0;
    for (End& e : ends_) n += e.poll(room);
    if (n == 0 && below_.idle) below_.idle();
    return n;
  }
  // Polls for a while, so that pending events can happen.
  void settle() {
    for (int i = 0; i < 200; ++i) poll_all();
  }
  template <class Done>
  ::testing::AssertionResult until(Done done, std::size_t room = 16) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!done()) {
      if (poll_all(room) > 0) continue;
      if (std::chrono::steady_clock::now() <= deadline) continue;
      auto failure = ::testing::AssertionFailure() << "deadline passed; transfers under way:";
      for (int r = 0; r < size(); ++r) {
        End& end = ends_[static_cast<std::size_t>(r)];
        failure << " rank " << r << ": " << end.open() << " " << end.failed();
        end.give_up();
      }
      return failure;
    }
    return ::testing::AssertionSuccess();
  }
  // Polls until all transfers are complete; fails if one of them failed.
  ::testing::AssertionResult finish(std::size_t room = 16) {
    const auto idle = [&] {
      for (const End& e : ends_) {
        if (!e.idle()) return false;
      }
      return true;
    };
    if (auto r = until(idle, room); !r) return r;
    for (const End& e : ends_) {
      if (!e.all_ok()) return ::testing::AssertionFailure() << e.failed();
    }
    return ::testing::AssertionSuccess();
  }

 private:
  Endpoints below_;
  std::vector<End> ends_;
};

// A head whose words derive from `sign`.
inline Head head(std::uint64_t sign) { return {sign, {sign + 1, sign + 2, sign + 3, sign + 4}}; }

inline bool same(const Head& a, const Head& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

class Conformance : public ::testing::TestWithParam<Maker> {
 protected:
  Net make(int n) { return Net(GetParam().make(n)); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

inline std::string maker_name(const ::testing::TestParamInfo<Maker>& info) {
  return info.param.name;
}

using Kind = Transfer::Kind;

}  // namespace weft::testing
