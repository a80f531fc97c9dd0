// Rank 0 of a job with the verbs transport, on a fake device; what its peers say is up to the test.
// The transport's own code knows nothing of it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/fakes/fake_verbs.h"
#include "support/fakes/forged_job.h"
#include "topo/topology.h"
#include "transport/verbs/credits.h"
#include "transport/verbs/messages.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {

struct VerbsPeers {
  static constexpr int kQps = 2, kSlots = 4, kSlotBytes = 256, kWindows = 2;
  static constexpr std::size_t kMostInSlot = kSlotBytes - kVerbsFrontBytes;

  // What a peer knows of one queue pair, and keeps count of.
  struct Lane {
    std::uint32_t pair = 0;
    std::uint64_t ring = 0;
    std::uint32_t key = 0;
    std::uint32_t next = 0;   // slot
    std::uint16_t taken = 0;  // messages of rank 0
  };

  // Throws what the transport throws.
  explicit VerbsPeers(int ranks, const Forge& forge = {}, int send_depth = 16) {
    for (const auto& [variable, value] :
         {std::pair("WEFT_VERBS_QPS", kQps), std::pair("WEFT_VERBS_SLOTS", kSlots),
          std::pair("WEFT_VERBS_SLOT_BYTES", kSlotBytes), std::pair("WEFT_VERBS_WINDOWS", kWindows),
          std::pair("WEFT_VERBS_SEND_DEPTH", send_depth)})
      setenv(variable, std::to_string(value).c_str(), 1);
    fake.prompt = fake.refuse_sends = false;
    Nic rail;
    rail.name = "fake";
    rail.rdma = rail.up = true;
    ForgedJob job(ranks, forge);
    transport = make_verbs_transport(job, separate_hosts(ranks, rail), rail);
    lanes.resize(static_cast<std::size_t>((ranks - 1) * kQps));
    // The greeting: a kind, four counts, where the rings are and their key, and so on.
    constexpr std::size_t kRings = 1 + 4 * sizeof(std::uint32_t);
    for (std::size_t r = 1; r < job.said_to.size(); ++r)
      learn(job.said_to[r], kRings, (r - 1) * kQps, kQps);
  }
  ~VerbsPeers() {
    fake.prompt = true;
    transport.reset();
    demand(fake.pairs.empty() && fake.regions.empty(), "something is left of a transport");
  }

  Lane& lane(Rank rank, int k = 0) {
    return lanes[static_cast<std::size_t>((rank - 1) * kQps + k)];
  }
  FakeVerbs::Pair* pair(Rank rank, int k = 0) { return fake.pair(lane(rank, k).pair); }

  // An invitation, as reopen() makes it.
  void reopened(Rank rank, const std::string& invitation) {
    learn(invitation, 0, static_cast<std::size_t>((rank - 1) * kQps), kQps);
  }

  bool arrive(Rank rank, int k, VerbsImmediate::Kind kind, std::uint32_t index) {
    FakeVerbs::Pair* const p = pair(rank, k);
    return p && fake.arrive(*p, VerbsImmediate{kind, index, lane(rank, k).taken}.pack());
  }
  // These bytes in the slot that is due. False: rank 0 has no room for it, or has given up.
  bool message(Rank rank, int k, std::string_view bytes) {
    Lane& l = lane(rank, k);
    const std::string whole(bytes.substr(0, kSlotBytes));
    if (!pair(rank, k) || pair(rank, k)->receives.empty()) return false;
    if (!fake.write(l.key, l.ring + std::uint64_t{l.next} * kSlotBytes, whole)) return false;
    return arrive(rank, k, VerbsImmediate::Kind::kMessage,
                  std::exchange(l.next, (l.next + 1) % kSlots));
  }
  template <class Body>
  bool message(Rank rank, int k, const VerbsMessageFront& front, const Body& body) {
    std::string bytes(reinterpret_cast<const char*>(&front), sizeof front);
    bytes.append(reinterpret_cast<const char*>(&body), sizeof body);
    return message(rank, k, bytes);
  }
  // What rank 0 has sent on this queue pair arrives; its slots are taken.
  std::vector<FakeVerbs::Request> take(Rank rank, int k = 0) {
    std::vector<FakeVerbs::Request> all;
    FakeVerbs::Pair* const p = pair(rank, k);
    FakeVerbs::Request one;
    while (p && fake.leave(*p, &one)) {
      if (one.opcode == IBV_WR_RDMA_WRITE_WITH_IMM &&
          VerbsImmediate::unpack(one.immediate).kind == VerbsImmediate::Kind::kMessage)
        ++lane(rank, k).taken;
      all.push_back(std::move(one));
    }
    return all;
  }

  FakeVerbs& fake = FakeVerbs::get();
  std::unique_ptr<Transport> transport;
  std::vector<Lane> lanes;

 private:
  void learn(const std::string& text, std::size_t at, std::size_t first, std::size_t n) {
    std::uint64_t rings = 0;
    std::uint32_t key = 0;
    std::memcpy(&rings, text.data() + at, sizeof rings);
    std::memcpy(&key, text.data() + at + sizeof rings, sizeof key);
    const char* names = text.data() + text.size() - n * sizeof(VerbsQpName);
    for (std::size_t i = 0; i < n; ++i, names += sizeof(VerbsQpName)) {
      Lane& l = lanes[first + i];
      l = {};
      std::memcpy(&l.pair, names, sizeof l.pair);
      l.ring = rings + i * kSlots * kSlotBytes;
      l.key = key;
    }
  }
};

}  // namespace weft::testing
