// Sockets of the control plane.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <array>

#include "transport/control/socket.h"

namespace weft {
namespace {

int segment_of(int fd) {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, &length), 0);
  return bytes;
}

// A switch that drops packets of 1,400 bytes forwards those of the control plane, in both
// directions.
TEST(ControlSocket, ItsSegmentsPassEveryNetwork) {
  const std::array<std::uint16_t, 1> any{0};
  const Fd listener = listen_on("127.0.0.1", any);
  const std::array<std::uint16_t, 1> port{port_of(listener.get())};
  std::string problem;
  const auto there = resolve("127.0.0.1", port, problem);
  ASSERT_FALSE(there.empty()) << problem;
  int error = 0;
  const Fd client = start_connect(there.front(), error);
  ASSERT_TRUE(client) << error;
  pollfd waits{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waits, 1, 5000), 1);
  const Fd server = accept_from(listener.get(), error);
  ASSERT_TRUE(server) << error;
  EXPECT_LE(segment_of(client.get()), 1200);
  EXPECT_LE(segment_of(server.get()), 1200);
}

}  // namespace
}  // namespace weft
