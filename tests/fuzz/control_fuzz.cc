// A rank that knows the secret sends rank 0 any frames on the control plane, in any order. Rank 0
// continues or names the rank, and its destructor does not wait.
//
// An input is frames: a byte with the type and whether more follows, the length, and that many
// bytes.
// runs: 150
// labels: multiproc
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/control/frames.h"
#include "transport/job/job_assembly.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  test::Specs specs(2);
  std::unique_ptr<Job> root;
  std::thread other([&] { root = connect(specs[0]); });
  RootLink link = assemble_leaf(specs[1]);
  other.join();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (rest.size() >= 2) {
    const auto what = static_cast<std::uint8_t>(rest[0]);
    const std::size_t length =
        std::min<std::size_t>(static_cast<std::uint8_t>(rest[1]), rest.size() - 2);
    const std::string frame =
        wire::encode_frame(static_cast<wire::Type>(what & 31), rest.substr(2, length), what >> 7);
    rest.remove_prefix(2 + length);
    (void)::send(link.channel.fd(), frame.data(), frame.size(), MSG_NOSIGNAL);
  }
  std::thread gathers([&] {
    try {
      (void)root->all_gather("x");
    } catch (const Error&) {
    }
  });
  link.channel.close();
  gathers.join();
  root->leave();
  return 0;
}
