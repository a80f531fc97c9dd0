// The transfers of a fuzz target: posted and canceled as the input says, and completed at most
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "support/fakes/forged_job.h"
#include "transport/offers.h"

namespace weft::testing {

inline void require(bool truth) {
  if (!truth) std::abort();
}

class Transfers {
 public:
  // Posts `bytes` bytes of the value `fill`; the body gives the tag, and whether there is a head.
  void post(Transport& transport, Rank peer, Transfer::Kind kind, std::string_view body,
            std::size_t bytes, std::byte fill = {}) {
    const std::uint64_t id = ++next_id_ << 32;
    auto posted = std::make_unique<Posted>();
    posted->bytes.resize(bytes, fill);
    posted->head.sign = 1 + byte_of(body, 2) % 2;
    Transfer& t = posted->transfer;
    t.kind = kind;
    t.peer = peer;
    t.tag = byte_of(body, 0) & 7;
    t.data = posted->bytes.data();
    t.bytes = bytes;
    t.id = id;
    if (byte_of(body, 2) & 4) t.head = &posted->head;
    under_way_[id] = std::move(posted);
    transport.post({&t, 1});
  }
  // Cancels a transfer; its bytes must not be accessed afterwards.
  void cancel(Transport& transport, std::uint32_t which) {
    if (under_way_.empty()) return;
    auto at = under_way_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(which % under_way_.size()));
    transport.cancel(static_cast<std::uint32_t>(at->first >> 32));
    under_way_.erase(at);
  }
  // Disconnects the peer, and cancels its pending transfers.
  void disconnect(Transport& transport, Rank peer) {
    transport.recovery()->disconnect(peer);
    for (auto it = under_way_.begin(); it != under_way_.end();) {
      const auto at = it++;
      if (at->second->transfer.peer != peer) continue;
      transport.cancel(static_cast<std::uint32_t>(at->first >> 32));
      under_way_.erase(at);
    }
  }
  void poll(Transport& transport) {
    Completion out[8];
    for (int i = 0; i < 4; ++i) {
      const std::size_t n = transport.poll(out);
      for (std::size_t c = 0; c < n; ++c) {
        const auto at = under_way_.find(out[c].id);
        require(at != under_way_.end());
        if (out[c].code != Code::kOk) require(!transport.cause(at->second->transfer.peer).ok());
        under_way_.erase(at);
      }
    }
  }

 private:
  struct Posted {
    Transfer transfer;
    std::vector<std::byte> bytes;
    Head head;
  };
  std::map<std::uint64_t, std::unique_ptr<Posted>> under_way_;
  std::uint64_t next_id_ = 0;
};

}  // namespace weft::testing
