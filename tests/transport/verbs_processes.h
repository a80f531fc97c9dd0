// Ranks as processes, each with one verbs transport: for tests in which one of them dies.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "transport/rank_processes.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs_devices.h"

namespace weft::testing {

class VerbsRank {
 public:
  VerbsRank(SharedBoard& board, Rank rank)
      : job_(board, rank),
        transport_(make_verbs_transport(job_, verbs_hosts(job_.size()), test_rail(rank))) {}
  Transport& transport() { return *transport_; }
  void send(Rank peer, std::uint64_t tag, const void* data, std::size_t bytes, std::uint64_t id) {
    one(Transfer::Kind::kSend, peer, tag, const_cast<void*>(data), bytes, id);
  }
  void recv(Rank peer, std::uint64_t tag, void* data, std::size_t bytes, std::uint64_t id) {
    one(Transfer::Kind::kRecv, peer, tag, data, bytes, id);
  }
  // The code that transfer `id` ends with; a failed test when it does not within 60 s. `meanwhile`
  // runs about ten times a second.
  Code wait(std::uint64_t id, const std::function<void()>& meanwhile = {}) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    auto next = std::chrono::steady_clock::now();
    while (!done_.contains(id)) {
      if (meanwhile && std::chrono::steady_clock::now() > next) {
        next += std::chrono::milliseconds(100);
        meanwhile();
      }
      Completion out[8];
      const std::size_t n = transport_->poll(out);
      for (std::size_t i = 0; i < n; ++i) done_[out[i].id] = out[i].code;
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "transfer " << id << " does not end";
        return Code::kTimeout;
      }
      if (n == 0) std::this_thread::yield();
    }
    return done_.at(id);
  }

 private:
  void one(Transfer::Kind kind, Rank peer, std::uint64_t tag, void* data, std::size_t bytes,
           std::uint64_t id) {
    Transfer t;
    t.kind = kind, t.peer = peer, t.tag = tag, t.data = data, t.bytes = bytes, t.id = id;
    transport_->post({&t, 1});
  }
  SharedJob job_;
  std::unique_ptr<Transport> transport_;
  std::map<std::uint64_t, Code> done_;
};

}  // namespace weft::testing
