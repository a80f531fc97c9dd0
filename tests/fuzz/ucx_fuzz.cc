// What a peer says over UCX (transport/ucx*.cc, on a fake UCP): the heads in front of its messages,
// lengths and tags that fit nothing, addresses, connections that break. Whatever comes, nothing is
// read or written that is not there, UCX gets no address but one that is whole, and every transfer
// ends once at most.
//
// The first byte of an input says whether the addresses are right; where they are not, the rest is
// laid over them. Then come pieces: a byte with what happens (4 bits), a source (2 bits: one more
// than there are ranks) and whether bytes come late, a length, and so many bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/fakes/fake_ucx.h"
#include "support/fakes/forged_job.h"
#include "topo/topology.h"
#include "transport/ucx/ucx.h"

namespace {

using weft::Code;
using weft::Completion;
using weft::Head;
using weft::Rank;
using weft::Transfer;
using weft::testing::byte_of;
using weft::testing::FakeUcx;
using weft::testing::laid_over;

constexpr int kRanks = 3, kTagBits = 62;
constexpr int kMostPieces = 24;
constexpr std::size_t kSizes[] = {0, 8, 256, 257, 3000, (1u << 20) + 8};

void require(bool truth) {
  if (!truth) std::abort();
}

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
        cancel(byte_of(body, 0));
        break;
      case 7:
        begin_anew(peer, body);
        break;
      case 8: {
        Head head;
        const Rank of = byte_of(body, 2) & 1 ? peer : weft::kNoRank;
        const Rank from = transport_->unclaimed(of, byte_of(body, 0) & 7, byte_of(body, 1), head);
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
    poll();
  }

 private:
  struct Posted {
    Transfer transfer;
    std::vector<std::byte> bytes;
    Head head;
  };

  void post(Rank peer, Transfer::Kind kind, std::string_view body) {
    const std::uint64_t id = ++next_id_ << 32;
    auto posted = std::make_unique<Posted>();
    posted->bytes.resize(kSizes[byte_of(body, 1) % std::size(kSizes)]);
    posted->head.sign = 1 + byte_of(body, 2) % 2;
    Transfer& t = posted->transfer;
    t.kind = kind;
    t.peer = peer;
    t.tag = byte_of(body, 0) & 7;
    t.data = posted->bytes.data();
    t.bytes = posted->bytes.size();
    t.id = id;
    if (byte_of(body, 2) & 4) t.head = &posted->head;
    under_way_[id] = std::move(posted);
    transport_->post({&t, 1});
  }

  void arrive(Rank source, std::uint8_t tag, std::string bytes) {
    const ucp_tag_t wide = tag == 0xff ? ucp_tag_t{0xff} << 40 : tag & 7u;
    fake_.arrive(static_cast<ucp_tag_t>(source) << kTagBits | wide, std::move(bytes));
  }

  // As a rank sends it: with a head, as this rank's own sends have it, or without.
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

  void cancel(std::uint32_t which) {
    if (under_way_.empty()) return;
    auto at = under_way_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(which % under_way_.size()));
    transport_->cancel(static_cast<std::uint32_t>(at->first >> 32));
    under_way_.erase(at);  // nobody touches its bytes from here on
  }

  void begin_anew(Rank peer, std::string_view body) {
    transport_->sever(peer);
    for (auto it = under_way_.begin(); it != under_way_.end();) {
      const auto at = it++;
      if (at->second->transfer.peer != peer) continue;
      transport_->cancel(static_cast<std::uint32_t>(at->first >> 32));
      under_way_.erase(at);
    }
    const std::string mine = transport_->reopen(peer);
    if (!mine.empty()) transport_->meet(peer, laid_over(mine, body));
  }

  void poll() {
    Completion out[8];
    for (int i = 0; i < 4; ++i) {
      const std::size_t n = transport_->poll(out);
      for (std::size_t c = 0; c < n; ++c) {
        const auto at = under_way_.find(out[c].id);
        require(at != under_way_.end());
        if (out[c].code != Code::kOk) require(!transport_->cause(at->second->transfer.peer).ok());
        under_way_.erase(at);
      }
    }
  }

  std::map<std::uint64_t, std::unique_ptr<Posted>> under_way_;  // outlives the transport
  std::uint64_t next_id_ = 0;
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
