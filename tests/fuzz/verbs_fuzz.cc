// Invalid messages of a peer over verbs (transport/verbs*.cc, on a fake device): greetings,
// letters, writes into slots with their immediate data, and invitations after a connection has
// ended. No invalid reads or writes, every transfer completes at most once, and no message is sent
// to the wrong peer.
//
// The first byte of an input says whether the greetings are valid; if not, the rest overwrites
// them. Then follow pieces: a byte with the event (4 bits), a peer and a queue pair (a bit each); a
// length; and that many bytes.
// runs: 8000
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/transfers.h"
#include "support/fakes/verbs_peer.h"

namespace {

using weft::Head;
using weft::Rank;
using weft::Transfer;
using weft::VerbsCts;
using weft::VerbsImmediate;
using weft::VerbsLetter;
using weft::VerbsLetterFront;
using weft::VerbsMessage;
using weft::VerbsMessageFront;
using weft::testing::byte_of;
using weft::testing::FakeVerbs;
using weft::testing::laid_over;
using weft::testing::require;
using weft::testing::VerbsPeers;

constexpr int kRanks = 3;
constexpr int kMostPieces = 24;

class Play {
 public:
  Play() : net_(kRanks) {}

  void piece(std::uint8_t what, std::string_view body) {
    const Rank peer = 1 + (what >> 4 & 1);
    const int k = what >> 5 & 1;
    switch (what & 15) {
      case 0:
        post(peer, Transfer::Kind::kRecv, body);
        break;
      case 1:
        post(peer, Transfer::Kind::kSend, body);
        break;
      case 2:
        net_.message(peer, k, body);
        break;
      case 3:
        message(peer, k, body);
        break;
      case 4:
        send_cts(peer, k, body);
        break;
      case 5:
        net_.arrive(peer, k, VerbsImmediate::Kind::kWindow, byte_of(body, 0));
        break;
      case 6:
        net_.arrive(peer, k, VerbsImmediate::Kind::kEmpty, 0);
        break;
      case 7: {
        std::uint32_t bits = 0;
        std::memcpy(&bits, body.data(), std::min(body.size(), sizeof bits));
        if (FakeVerbs::Pair* const p = net_.pair(peer, k))
          net_.fake.arrive(*p, bits, body.size() != 3);
        break;
      }
      case 8: {  // writes over any slot, or over data of a pending send
        const auto& lane = net_.lane(peer, k);
        const std::int64_t off = static_cast<std::int8_t>(byte_of(body, 0)) * 64;
        net_.fake.write(lane.key, lane.ring + static_cast<std::uint64_t>(off), body);
        break;
      }
      case 9:
        if (FakeVerbs::Pair* const p = net_.pair(peer, k))
          net_.fake.fail(*p, static_cast<ibv_wc_status>(1 + byte_of(body, 0) % 22));
        break;
      case 10:
        transfers_.cancel(*net_.transport, byte_of(body, 0));
        break;
      case 11:
        begin_anew(peer, body);
        break;
      case 12: {
        Head head;
        net_.transport->unexpected(peer, byte_of(body, 0) & 7, 7, head);
        net_.transport->disputed(peer, head);
        net_.transport->forget(byte_of(body, 1) & 7, byte_of(body, 2));
        break;
      }
      case 13:
        letter(peer, body);
        break;
      default:
        take(peer, k);
        break;
    }
    transfers_.poll(*net_.transport);
    // The peers accept rank 0's invitations.
    for (; !net_.mail->sent.empty(); net_.mail->sent.pop_front()) {
      const auto& [to, text] = net_.mail->sent.front();
      VerbsLetterFront front;
      std::memcpy(&front, text.data(), sizeof front);
      if (front.what != VerbsLetter::kInvite) continue;
      attempt_[to] = front.mine;
      net_.reopened(to, text.substr(sizeof front));
    }
  }

 private:
  void post(Rank peer, Transfer::Kind kind, std::string_view body) {
    constexpr std::size_t kSizes[] = {0, 8, VerbsPeers::kMostInSlot, VerbsPeers::kMostInSlot + 1,
                                      2500};
    // The content of a message identifies its destination.
    transfers_.post(*net_.transport, peer, kind, body, kSizes[byte_of(body, 1) % std::size(kSizes)],
                    std::byte(peer));
  }

  // Writes a message that fits a receive, or nearly does.
  void message(Rank peer, int k, std::string_view body) {
    VerbsMessageFront front;
    front.what = static_cast<VerbsMessage>(byte_of(body, 0) % 5);
    front.tag = byte_of(body, 1) & 7;
    front.number = byte_of(body, 2) & 7;
    constexpr std::size_t kSizes[] = {
        0, 8, VerbsPeers::kMostInSlot, VerbsPeers::kMostInSlot + 1, 2500, 1u << 31};
    front.bytes = kSizes[byte_of(body, 3) % std::size(kSizes)];
    front.headed = byte_of(body, 4) & 1;
    std::string text(reinterpret_cast<const char*>(&front), sizeof front);
    Head head;
    head.sign = 1 + (byte_of(body, 4) >> 1) % 2;
    if (front.headed) text.append(reinterpret_cast<const char*>(&head), sizeof head);
    text += body.substr(std::min<std::size_t>(5, body.size()));
    net_.message(peer, k, text);
  }

  void send_cts(Rank peer, int k, std::string_view body) {
    VerbsMessageFront front;
    front.what = VerbsMessage::kCts;
    front.number = byte_of(body, 0) & 7;
    VerbsCts cts;
    cts.address = 0x1000;
    cts.key = 0x7fff'ffff;
    cts.window = byte_of(body, 1) == 0xff ? 0xffff'ffff : byte_of(body, 1);
    net_.message(peer, k, front, cts);
  }

  // A letter about the current connection, or about another one.
  void letter(Rank peer, std::string_view body) {
    const std::uint8_t about = byte_of(body, 1);
    const std::uint32_t yours = about & 1 ? 0 : attempt_[peer] + (about >> 1 & 3) - 1;
    const std::uint32_t mine = 1 + (about >> 3 & 7);
    const std::string_view rest = body.substr(std::min<std::size_t>(2, body.size()));
    const auto what = static_cast<VerbsLetter>(byte_of(body, 0) % 8);
    std::string text(rest);
    if (what == VerbsLetter::kInvite) text = laid_over(VerbsPeers::invitation(mine), rest);
    if (what == VerbsLetter::kClose) {
      text.assign(VerbsPeers::kQps * sizeof(std::uint64_t), '\0');
      for (std::size_t k = 0; k < VerbsPeers::kQps; ++k)
        text[k * sizeof(std::uint64_t)] = static_cast<char>(byte_of(rest, k));
    }
    net_.letter(peer, what, yours, text, mine);
  }

  // Delivers this peer's messages from rank 0.
  void take(Rank peer, int k) {
    for (const FakeVerbs::Request& r : net_.take(peer, k)) {
      if (r.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        const auto what = VerbsImmediate::unpack(r.immediate);
        using Kind = VerbsImmediate::Kind;
        require(what.kind == Kind::kMessage  ? what.index < VerbsPeers::kSlots
                : what.kind == Kind::kWindow ? what.index < VerbsPeers::kWindows
                                             : what.kind == Kind::kEmpty && what.index == 0);
      }
      // Long messages are written to a peer's own memory; slots are in the fake device's memory.
      if (r.key == 0x7fff'ffff)
        for (const char c : r.bytes) require(c == static_cast<char>(peer));
    }
  }

  void begin_anew(Rank peer, std::string_view body) {
    transfers_.disconnect(*net_.transport, peer);
    const std::string mine = net_.transport->recovery()->reopen(peer);
    require(!mine.empty());
    net_.reopened(peer, mine);
    net_.transport->recovery()->connect(peer, laid_over(mine, body));
  }

  weft::testing::Transfers transfers_;                     // outlive the transport
  std::map<Rank, std::uint32_t> attempt_{{1, 1}, {2, 2}};  // rank 0's latest
  VerbsPeers net_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (byte_of(rest, 0) & 1) {
    rest.remove_prefix(1);
    try {
      VerbsPeers net(kRanks, [&](Rank from, const std::string& right) {
        return from == 1 ? right : laid_over(right, rest);
      });
    } catch (const weft::Error&) {
    }
    return 0;
  }
  Play play;
  rest.remove_prefix(std::min<std::size_t>(1, rest.size()));
  for (int pieces = 0; rest.size() >= 2 && pieces < kMostPieces; ++pieces) {
    const std::size_t length = std::min<std::size_t>(byte_of(rest, 1), rest.size() - 2);
    play.piece(byte_of(rest, 0), rest.substr(2, length));
    rest.remove_prefix(2 + length);
  }
  return 0;
}
