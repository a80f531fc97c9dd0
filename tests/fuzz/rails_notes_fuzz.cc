// Fuzzes the notes that a peer sends besides its messages (transport/rails/notes.cc). Rails makes
// no invalid reads or writes, and still posts later transfers of this rank or ends them once.
//
// An input is pieces: a byte whose lowest bit is the rail and whose next bits select an event (a
// raw datagram, a note with the next number, the end of a transfer below, a new transfer), the
// length, and that many bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/offers.h"
#include "transport/rails/rails.h"

namespace {

using weft::Completion;
using weft::Datagram;
using weft::Rank;
using weft::Transfer;

void require(bool truth) {
  if (!truth) std::abort();
}

// A rail that ends its transfers when the input says so.
class Rail final : public weft::Transport, private weft::Recovery {
 public:
  void post(std::span<const Transfer> transfers) noexcept override {
    for (const Transfer& t : transfers) {
      if (t.kind == Transfer::Kind::kSend && t.bytes) sum += static_cast<const char*>(t.data)[0];
      posted.push_back(t);
    }
  }
  std::size_t poll(std::span<Completion> out) noexcept override {
    if (ended.empty() || out.empty()) return 0;
    out[0] = ended.back();
    ended.pop_back();
    return 1;
  }
  void cancel(std::uint32_t id_high) noexcept override {
    std::erase_if(posted, [&](const Transfer& t) { return t.id >> 32 == id_high; });
    std::erase_if(ended, [&](const Completion& c) { return c.id >> 32 == id_high; });
  }
  weft::Caps caps() const override { return {.name = "fuzz"}; }
  weft::Status cause(Rank peer) const override {
    return {weft::Code::kTransport, "as the input says", peer};
  }
  weft::Recovery* recovery() noexcept override { return this; }

  // Ends the oldest transfer, with or without success. It receives `bytes`, truncated to its size.
  void end_one(bool well, std::string_view bytes) {
    if (posted.empty()) return;
    const Transfer t = posted.front();
    posted.erase(posted.begin());
    if (t.kind != Transfer::Kind::kSend && t.data)
      std::memcpy(t.data, bytes.data(), std::min(t.bytes, bytes.size()));
    ended.push_back({.id = t.id, .code = well ? weft::Code::kOk : weft::Code::kTransport});
  }

  std::vector<Transfer> posted;
  std::vector<Completion> ended;
  int sum = 0;

 private:
  void disconnect(Rank) noexcept override {
    posted.clear();
    ended.clear();
  }
  std::string reopen(Rank) noexcept override { return "here"; }
  bool connect(Rank, std::string_view theirs) noexcept override { return theirs.size() % 2 == 0; }
};

class Air final : public weft::DatagramChannel {
 public:
  std::int64_t now_us() noexcept override { return now; }
  void send(Rank to, int rail, std::string_view bytes) noexcept override {
    require(to == 1 && rail >= 0 && rail < 2 && bytes.size() <= 1u << 20);
  }
  bool receive(Datagram& datagram) noexcept override {
    if (in.empty()) return false;
    datagram = std::move(in.front());
    in.erase(in.begin());
    return true;
  }
  bool link_up(int) noexcept override { return true; }

  std::int64_t now = 1;
  std::vector<Datagram> in;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::unique_ptr<weft::Transport>> inner;
  std::vector<Rail*> lower;
  for (int r = 0; r < 2; ++r) {
    auto rail = std::make_unique<Rail>();
    lower.push_back(rail.get());
    inner.push_back(std::move(rail));
  }
  auto paths = std::make_unique<Air>();
  Air& air = *paths;
  // The buffers outlive the rails.
  std::vector<std::vector<std::byte>> buffers;
  weft::Rails rails(std::move(inner), std::move(paths), 0, 2);
  std::vector<std::unique_ptr<weft::Transport>> faces;
  for (int r = 0; r < 2; ++r) faces.push_back(rails.face(r));
  std::uint64_t posted = 0, ended = 0;
  const auto post = [&](int face, bool send, std::size_t bytes) {
    buffers.emplace_back(bytes);
    Transfer t;
    t.kind = send ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
    t.peer = 1;
    t.tag = posted;
    t.data = buffers.back().data();
    t.bytes = bytes;
    t.id = ++posted << 32;
    faces[static_cast<std::size_t>(face)]->post({&t, 1});
  };
  const auto poll = [&] {
    Completion out[16];
    for (int i = 0; i < 40; ++i) {
      air.now += 1000;
      for (const auto& face : faces) ended += face->poll(out);
    }
    require(ended <= posted);
  };
  for (const int face : {0, 1})
    for (const std::size_t bytes : {100u, 20000u}) {
      post(face, true, bytes);
      post(face, false, bytes);
    }
  poll();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::uint32_t due = 0;
  for (int pieces = 0; rest.size() >= 2 && pieces < 24; ++pieces) {
    const auto what = static_cast<unsigned char>(rest[0]);
    const std::size_t length =
        std::min<std::size_t>(static_cast<unsigned char>(rest[1]), rest.size() - 2);
    const std::string_view body = rest.substr(2, length);
    rest.remove_prefix(2 + length);
    const int rail = what & 1;
    switch (what >> 1 & 3) {
      case 0:
        air.in.push_back({1, rail, std::string(body)});
        break;
      case 1: {
        std::string note(1, 'n');
        note.append(reinterpret_cast<const char*>(&due), sizeof due);
        ++due;
        air.in.push_back({1, rail, note + std::string(body)});
        break;
      }
      case 2:
        lower[static_cast<std::size_t>(rail)]->end_one((what >> 3 & 3) != 0, body);
        break;
      default:
        post(rail, what >> 3 & 1, 1 + length * 100);
    }
    poll();
  }
  return 0;
}
