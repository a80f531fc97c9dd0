// Invalid messages of a peer over UCX (transport/ucx*.cc, on a fake UCP): heads of messages,
// mismatched lengths and tags, addresses, broken connections. No invalid reads or writes, UCX gets
// only complete addresses, and every transfer completes at most once.
//
// The first byte of an input says whether the addresses are valid; if not, the rest overwrites
// them. Then follow pieces: a byte with the event (4 bits), the source (2 bits: one more than there
// are ranks) and whether bytes arrive late; a length; and that many bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/transfers.h"
#include "support/fakes/fake_ucx.h"
#include "support/fakes/forged_job.h"
#include "topo/topology.h"
#include "transport/ucx/ucx.h"

namespace {

using weft::Head;
using weft::Rank;
using weft::Transfer;
using weft::testing::byte_of;
using weft::testing::FakeUcx;
using weft::testing::laid_over;
using weft::testing::require;

constexpr int kRanks = 3, kTagBits = 62;
constexpr int kMostPieces = 24;
constexpr std::size_t kSizes[] = {0, 8, 256, 257, 3000, (1u << 20) + 8};

std::unique_ptr<weft::Transport> make(const weft::testing::Forge& forge) {
  weft::Nic rail;
  rail.name = rail.netdev = "eth0";
  rail.up = true;
  weft::testing::ForgedJob job(kRanks, forge);
  FakeUcx::get().prompt = FakeUcx::get().slow = false;
  return weft::make_ucx_transport(job, weft::testing::separate_hosts(kRanks, rail), rail);
}

class Play {
 public:
  ~Play() {
    fake_.prompt = true;
    transport_.reset();
  }

  void piece(std::uint8_t what, std::string_view body) {
    const Rank source = what >> 4 & 3;
    const Rank peer = 1 + source % 2;
    fake_.slow = (what >> 6 & 1) != 0;
    switch (what & 15) {
      case 0:
        post(peer, Transfer::Kind::kRecv, body);
        break;
      case 1:
        post(peer, Transfer::Kind::kSend, body);
        break;
      case 2:
        arrive(source, byte_of(body, 0),
               std::string(body.substr(std::min<std::size_t>(1, body.size()))));
        break;
      case 3:
        message(source, body);
        break;
      case 4:
        fake_.leave();
        break;
      case 5:
        if (!fake_.endpoints.empty()) {
          const auto n = static_cast<std::ptrdiff_t>(byte_of(body, 0) % fake_.endpoints.size());
          fake_.lose(*std::next(fake_.endpoints.begin(), n));
        }
        break;
      case 6:
        transfers_.cancel(*transport_, byte_of(body, 0));
        break;
      case 7:
        begin_anew(peer, body);
        break;
      case 8: {
        Head head;
        const Rank of = byte_of(body, 2) & 1 ? peer : weft::kNoRank;
        const Rank from = transport_->unexpected(of, byte_of(body, 0) & 7, byte_of(body, 1), head);
        require(from >= weft::kNoRank && from < kRanks);
        transport_->disputed(peer, head);
        break;
      }
      case 9:
        transport_->forget(byte_of(body, 0) & 7, byte_of(body, 1));
        break;
      default:
        break;  // only time passes
    }
    transfers_.poll(*transport_);
  }

 private:
  void post(Rank peer, Transfer::Kind kind, std::string_view body) {
    transfers_.post(*transport_, peer, kind, body, kSizes[byte_of(body, 1) % std::size(kSizes)]);
  }

  void arrive(Rank source, std::uint8_t tag, std::string bytes) {
    const ucp_tag_t wide = tag == 0xff ? ucp_tag_t{0xff} << 40 : tag & 7u;
    fake_.arrive(static_cast<ucp_tag_t>(source) << kTagBits | wide, std::move(bytes));
  }

  // A message as sent by a rank: with a head like this rank's own sends, or without.
  void message(Rank source, std::string_view body) {
    std::string text;
    if (byte_of(body, 2) & 4) {
      constexpr std::uint64_t kMagic = 0x7765'6674'4865'6164;
      Head head;
      head.sign = 1 + byte_of(body, 2) % 2;
      text.append(reinterpret_cast<const char*>(&kMagic), sizeof kMagic);
      text.append(reinterpret_cast<const char*>(&head), sizeof head);
    }
    const std::size_t front = text.size();
    text.resize(front + kSizes[byte_of(body, 1) % std::size(kSizes)]);
    for (std::size_t i = 3; i < body.size() && front + i - 3 < text.size(); ++i)
      text[front + i - 3] = body[i];
    arrive(source, byte_of(body, 0), std::move(text));
  }

  void begin_anew(Rank peer, std::string_view body) {
    transfers_.disconnect(*transport_, peer);
    const std::string mine = transport_->recovery()->reopen(peer);
    if (!mine.empty()) transport_->recovery()->connect(peer, laid_over(mine, body));
  }

  weft::testing::Transfers transfers_;  // outlive the transport
  FakeUcx& fake_ = FakeUcx::get();
  std::unique_ptr<weft::Transport> transport_ = make({});
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const bool right = (byte_of(rest, 0) & 1) == 0;
  rest.remove_prefix(std::min<std::size_t>(1, rest.size()));
  if (!right) {
    try {
      const auto transport = make([&](Rank from, const std::string& address) {
        return from == 1 ? address : laid_over(address, rest);
      });
      std::byte byte{};
      Transfer t;
      t.kind = Transfer::Kind::kRecv;
      t.peer = 2;
      t.data = &byte;
      t.bytes = 1;
      transport->post({&t, 1});
      transport->cancel(0);
    } catch (const weft::Error&) {
    }
    return 0;
  }
  Play play;
  for (int pieces = 0; rest.size() >= 2 && pieces < kMostPieces; ++pieces) {
    const std::size_t length = std::min<std::size_t>(byte_of(rest, 1), rest.size() - 2);
    play.piece(byte_of(rest, 0), rest.substr(2, length));
    rest.remove_prefix(2 + length);
  }
  return 0;
}
