// Rank 0 of a job with the verbs transport on a fake device; the test plays the peers. The
// transport's code is unchanged.
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
#include "transport/verbs/ring.h"
#include "transport/verbs/device.h"
#include "transport/verbs/connections/letters.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {

struct VerbsPeers {
  static constexpr int kQps = 2, kSlots = 4, kSlotBytes = 256, kWindows = 2;
  static constexpr std::size_t kMostInSlot = kSlotBytes - kVerbsFrontBytes;

  // A peer's state of one queue pair.
  struct Lane {
    std::uint32_t pair = 0;
    std::uint64_t ring = 0;
    std::uint32_t key = 0;
    std::uint32_t next = 0;   // slot
    std::uint16_t taken = 0;  // messages of rank 0
  };

  // Throws the transport's errors.
  explicit VerbsPeers(int ranks, const Forge& forge = {}, int send_depth = 16,
                      bool connected = true) {
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
    mail = job.mail;
    transport = make_verbs_transport(job, separate_hosts(ranks, rail), rail);
    lanes.resize(static_cast<std::size_t>((ranks - 1) * kQps));
    for (Rank r = 1; connected && r < ranks; ++r) connect(r);
  }
  // The peer invites rank 0, gets its answer, and reports that it is ready.
  void connect(Rank rank) {
    letter(rank, VerbsLetter::kInvite, 0, invitation(1));
    poll();
    for (; !mail->sent.empty(); mail->sent.pop_front()) {
      const ForgedMail::Sent& sent = mail->sent.front();
      VerbsLetterFront front;
      std::memcpy(&front, sent.bytes.data(), sizeof front);
      if (sent.to != rank || front.what != VerbsLetter::kInvite) continue;
      reopened(rank, sent.bytes.substr(sizeof front));
      letter(rank, VerbsLetter::kReady, front.mine);
    }
    poll();
  }
  // Sends a letter (out-of-band message) of the peer, from its connection attempt `mine`.
  void letter(Rank from, VerbsLetter what, std::uint32_t yours, std::string_view body = {},
              std::uint32_t mine = 1) {
    const VerbsLetterFront front{what, mine, yours};
    std::string text(reinterpret_cast<const char*>(&front), sizeof front);
    mail->coming.push_back({from, text.append(body)});
  }
  // A peer's invitation.
  static std::string invitation(std::uint32_t number) {
    VerbsPort port;
    port.mtu = 1024;
    port.gids = {{GidKind::kRoce2Ipv4, 0, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}}};
    const std::string text = port.encode();
    VerbsInvitation mine;
    mine.rings = 0x10000;
    mine.key = 0x5a5a;
    mine.port_bytes = static_cast<std::uint32_t>(text.size());
    mine.number = number;
    std::string whole(reinterpret_cast<const char*>(&mine), sizeof mine);
    whole += text;
    for (std::uint32_t k = 0; k < kQps; ++k) {
      const VerbsQpName name{0x800000 + k, k};
      whole.append(reinterpret_cast<const char*>(&name), sizeof name);
    }
    return whole;
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

  // Answers an invitation made by reopen().
  void reopened(Rank rank, const std::string& invitation) {
    learn(invitation, 0, static_cast<std::size_t>((rank - 1) * kQps), kQps);
  }

  bool arrive(Rank rank, int k, VerbsImmediate::Kind kind, std::uint32_t index) {
    FakeVerbs::Pair* const p = pair(rank, k);
    return p && fake.arrive(*p, VerbsImmediate{kind, index, lane(rank, k).taken}.pack());
  }
  // Writes a message to the next slot. False: rank 0 has no receive posted, or has disconnected.
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
  // Completes and returns rank 0's sends on this queue pair, and frees their slots.
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
  std::shared_ptr<ForgedMail> mail;
  std::unique_ptr<Transport> transport;
  std::vector<Lane> lanes;

 private:
  void poll() {
    Completion none[1];
    for (int i = 0; i < 4; ++i) demand(transport->poll(none) == 0, "nothing was posted");
  }
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
