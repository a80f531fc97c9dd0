// Arbitrary datagrams to the UDP sockets of rails: only datagrams signed by a peer are accepted,
// each once.
//
// An input is datagrams: a byte with the source socket, the rail, and whether the signature is
// right; the length; and that many bytes, which overwrite a valid header.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "support/fakes/forged_job.h"
#include "transport/control/address.h"
#include "transport/control/hmac.h"
#include "transport/control/socket.h"
#include "transport/rails/datagram_channel_udp.h"

namespace {

using namespace weft;

void require(bool truth) {
  if (!truth) std::abort();
}

struct Air {
  Air() {
    Nic lo;
    lo.name = lo.netdev = "lo";
    lo.address = "127.0.0.1";
    lo.up = true;
    for (Fd& fd : sockets) {
      fd = Fd::from([] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
      Address here;
      require(parse_address("127.0.0.1", 0, here));
      require(bind(fd.get(), reinterpret_cast<sockaddr*>(&here.bytes), here.length) == 0);
    }
    weft::testing::ForgedJob job(2, [&](Rank, const std::string& right) {
      return right.substr(0, right.find(' ') + 1) + std::to_string(port_of(sockets[0].get()));
    });
    std::string why;
    channel = make_udp_paths(job, weft::testing::separate_hosts(2, lo), why);
    require(channel != nullptr);
    const auto space = job.said.find(' ');
    nonce = job.said.substr(0, space);
    require(parse_address("127.0.0.1",
                          static_cast<std::uint16_t>(std::stoi(job.said.substr(space))), to));
    key = derive_key(derive_key("forged", "datagrams of rails"), "1 " + nonce + " to 0 " + nonce);
  }
  Fd sockets[2];
  std::unique_ptr<DatagramChannel> channel;
  std::string nonce, key;
  Address to;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<Air> rank_0;
  static std::uint64_t number = 0;
  if (!rank_0 || number >> 62) rank_0 = std::make_unique<Air>(), number = 0;
  Air& air = *rank_0;
  struct {
    std::uint32_t from = 1, to = 0, rail = 0, zero = 0;
    std::uint64_t number = 0;
  } header;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (rest.size() >= 2) {
    const auto what = static_cast<std::uint8_t>(rest[0]);
    const std::size_t length =
        std::min<std::size_t>(static_cast<std::uint8_t>(rest[1]), rest.size() - 2);
    header.number = ++number;
    std::string text(reinterpret_cast<const char*>(&header), sizeof header);
    const std::string right = text;
    // Some of the bytes follow the header, others replace it.
    const std::string_view body = rest.substr(2, length);
    rest.remove_prefix(2 + length);
    if (what & 1)
      text = std::string(body) + text.substr(std::min(body.size(), text.size()));
    else
      text += body;
    const bool good = text.starts_with(right) && !(what & 6);
    if (!(what & 2)) text += hmac_sha256(air.key, text).substr(0, 16);
    const int from = what & 4 ? 1 : 0;
    for (int again = 0; again < 2; ++again) {
      require(sendto(air.sockets[from].get(), text.data(), text.size(), 0,
                     reinterpret_cast<const sockaddr*>(&air.to.bytes),
                     air.to.length) == static_cast<ssize_t>(text.size()));
      Datagram d;
      const bool taken = air.channel->receive(d);
      if (again || what & 6) {
        require(!taken);
      } else if (good) {
        require(taken && d.from == 1 && d.rail == 0 &&
                d.bytes.size() + sizeof header + 16 == text.size());
      } else if (taken) {  // signed, with another number
        std::memcpy(&header, text.data(), sizeof header);
        require(header.from == 1 && header.to == 0 && header.rail == 0);
        number = header.number;
        return 0;
      }
    }
  }
  return 0;
}
