// Shared by tests of the NIC transports: ranks as processes, each with rails over "lo".
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "topo/topology.h"
#include "transport/factory/transport_factory.h"
#include "transport/rank_processes.h"
#include "transport/shared_job.h"
#include "transport/ucx/ucx.h"

namespace weft::testing {

inline Nic loopback() {
  Nic nic;
  nic.name = nic.netdev = "lo";
  nic.address = "127.0.0.1";
  nic.up = true;
  return nic;
}

// Each rank on its own host: "host0", "host1", ...
inline Topology hosts_of_one(int n) {
  std::vector<Place> places(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r) {
    places[static_cast<std::size_t>(r)].host = "host" + std::to_string(r);
    places[static_cast<std::size_t>(r)].rails = {loopback()};
  }
  return Topology(places);
}

// One rank's end of one rail, and its completions so far.
class RailEnd {
 public:
  // `transport` is "tcp" or "ucx".
  RailEnd(SharedBoard& board, Rank rank, std::string transport)
      : job_(board, rank), transport_(std::move(transport)) {
    add_rail();
  }
  // A transport made by `make`.
  RailEnd(SharedBoard& board, Rank rank,
          const std::function<std::unique_ptr<Transport>(Job&, Rank)>& make)
      : job_(board, rank) {
    rails_.push_back(make(job_, rank));
  }
  void add_rail(const Nic& nic = loopback()) {
    rails_.push_back(make_rail_transport(transport_, job_, hosts_of_one(job_.size()), nic));
  }
  Transport& rail(std::size_t i = 0) { return *rails_[i]; }
  Job& job() { return job_; }
  void destroy() { rails_.clear(); }

  void send(Rank peer, std::uint64_t tag, const void* data, std::size_t bytes, std::uint64_t id) {
    one(Transfer::Kind::kSend, peer, tag, const_cast<void*>(data), bytes, id);
  }
  void recv(Rank peer, std::uint64_t tag, void* data, std::size_t bytes, std::uint64_t id) {
    one(Transfer::Kind::kRecv, peer, tag, data, bytes, id);
  }

  void poll() {
    for (auto& rail : rails_) {
      Completion out[8];
      const std::size_t n = rail->poll(out);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_TRUE(done_.emplace(out[i].id, out[i].code).second) << "twice: id " << out[i].id;
      }
    }
  }
  bool done(std::uint64_t id) const { return done_.contains(id); }
  // The code that transfer `id` ends with; the test fails after 60 s. Calls `meanwhile` about ten
  // times a second.
  Code wait(std::uint64_t id, const std::function<void()>& meanwhile = {}) {
    const auto begin = std::chrono::steady_clock::now();
    auto next = begin;
    while (!done(id)) {
      const auto now = std::chrono::steady_clock::now();
      if (meanwhile && now > next) {
        next += std::chrono::milliseconds(100);
        meanwhile();
      }
      poll();
      if (now > begin + std::chrono::seconds(60)) {
        ADD_FAILURE() << "transfer " << id << " does not end";
        return Code::kTimeout;
      }
    }
    return done_.at(id);
  }
  void poll_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) poll();
  }

 private:
  void one(Transfer::Kind kind, Rank peer, std::uint64_t tag, void* data, std::size_t bytes,
           std::uint64_t id) {
    Transfer t;
    t.kind = kind, t.peer = peer, t.tag = tag, t.data = data, t.bytes = bytes, t.id = id;
    rail().post({&t, 1});
  }

  SharedJob job_;
  std::string transport_;
  std::vector<std::unique_ptr<Transport>> rails_;
  std::map<std::uint64_t, Code> done_;
};

// Tests for each of these transports; GetParam() is its name.
class OverRails : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("ucx") && !ucx_available())
      GTEST_SKIP() << "missing capability: UCX";
  }
};
inline std::string rail_name(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

// Waits until the process whose id appears in `pid` has ended and its sockets are closed.
inline bool wait_dead(const std::atomic<int>& pid) {
  if (!SharedBoard::wait([&] { return pid.load() != 0; })) return false;
  const std::string path = "/proc/" + std::to_string(pid.load()) + "/stat";
  return SharedBoard::wait([&] {
    std::FILE* f = std::fopen(path.c_str(), "r");
    if (f == nullptr) return true;
    char text[256] = {};
    const std::size_t n = std::fread(text, 1, sizeof text - 1, f);
    std::fclose(f);
    return n == 0 || std::string(text).find(") Z") != std::string::npos;
  });
}

// Bytes that differ by source, destination and tag.
inline std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  unsigned x = seed * 2654435761u + 1;
  for (auto& b : data) {
    x = x * 1664525u + 1013904223u;
    b = static_cast<unsigned char>(x >> 24);
  }
  return data;
}

}  // namespace weft::testing
