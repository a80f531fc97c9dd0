// A rendezvous with a stranger that sends arbitrary bytes. If it connects in addition to a valid
// rank 1, it has no effect, and the job assembles. If it replaces rank 0, rank 1 ends with an
// Error, in time. An input selects one of the two cases, the sizes of the pieces, and the bytes.
// runs: 150
// labels: multiproc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "tests/transport/rendezvous_helpers.h"

namespace {

using namespace weft;
using namespace weft::test;

void require(bool truth, const std::string& why) {
  if (truth) return;
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

void stranger_beside_a_job(std::string_view bytes, std::size_t piece) {
  Specs setup(2);
  std::string errors[2];
  const auto take_part = [&](int r) {
    try {
      const auto job = connect(setup[r]);
      require(job->all_gather(r ? "one" : "zero") == std::vector<std::string>{"zero", "one"},
              "the job exchanges something else");
      job->leave();
    } catch (const Error& e) {
      errors[r] = e.what();
    }
  };
  std::thread root(take_part, 0);
  {
    const Stranger stranger(setup.port);
    for (std::size_t at = 0; at < bytes.size(); at += piece) stranger.say(bytes.substr(at, piece));
    take_part(1);
  }
  root.join();
  for (const std::string& error : errors) require(error.empty(), error);
}

void stranger_in_place_of_rank_0(std::string_view bytes, std::size_t piece) {
  Specs setup(2, 60ms);
  close(setup[0].listen_fd);
  const std::vector<std::uint16_t> any{0};
  const Fd listener = listen_on("127.0.0.1", any);
  setup[1].ports = {port_of(listener.get())};
  std::string error;
  std::thread leaf([&] {
    try {
      connect(setup[1]);
    } catch (const Error& e) {
      error = e.what();
    }
  });
  const auto until = Clock::now() + 60ms;
  for (int why = 0; Clock::now() < until;) {
    const Fd peer = accept_from(listener.get(), why);
    for (std::size_t at = 0; peer && at < bytes.size(); at += piece) {
      const std::string_view part = bytes.substr(at, piece);
      (void)send(peer.get(), part.data(), part.size(), MSG_NOSIGNAL);
    }
    std::this_thread::sleep_for(5ms);
  }
  leaf.join();
  require(!error.empty(), "rank 1 takes a stranger for rank 0");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::size_t piece = std::max<std::size_t>(1, data[1]);
  data[0] % 4 ? stranger_beside_a_job(bytes, piece) : stranger_in_place_of_rank_0(bytes, piece);
  return 0;
}
