// Makes the kernel drop datagrams.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace weft::testing {

// This process's datagram sockets.
inline std::vector<int> datagram_sockets() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_DGRAM) continue;
    size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_INET)
      found.push_back(fd);
  }
  return found;
}

// Drops each datagram to this process with the probability of_256 / 256.
inline void lose(std::uint32_t of_256) {
  std::array<sock_filter, 5> all = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_RANDOM)},
      {BPF_ALU | BPF_AND | BPF_K, 0, 0, 255},
      {BPF_JMP | BPF_JGE | BPF_K, 0, 1, of_256},
      {BPF_RET | BPF_K, 0, 0, UINT32_MAX},
      {BPF_RET | BPF_K, 0, 0, 0},
  }};
  const sock_fprog program{.len = all.size(), .filter = all.data()};
  const std::vector<int> fds = datagram_sockets();
  ASSERT_FALSE(fds.empty());
  for (const int fd : fds)
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
}

}  // namespace weft::testing
