// Jobs over real sockets for the rendezvous tests, with ranks as threads or as processes.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "transport/control/socket.h"
#include "transport/job/bootstrap.h"
#include "transport/job/job_assembly.h"

namespace weft::test {

using namespace std::chrono_literals;

// The JobSpec of each rank. Opens the listening socket, so that no other process can take the port.
struct Specs {
  std::vector<JobSpec> specs;
  std::uint16_t port = 0;

  explicit Specs(int n, std::chrono::milliseconds timeout = 20s) {
    const std::vector<std::uint16_t> any{0};
    Fd listener = listen_on("127.0.0.1", any);
    port = port_of(listener.get());
    for (Rank r = 0; r < n; ++r) {
      JobSpec spec;
      spec.rank = r;
      spec.size = n;
      spec.address = "127.0.0.1";
      spec.ports = {port};
      spec.secret = "the secret of this test";
      spec.timeout = timeout;
      // A duplicate, because connect() takes ownership.
      if (r == 0) spec.listen_fd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
      specs.push_back(spec);
    }
  }
  JobSpec& operator[](int r) { return specs[static_cast<std::size_t>(r)]; }
};

// Result of connect() on one rank.
struct Outcome {
  std::unique_ptr<Job> job;
  std::string error;
};

// The message of the exception that f() throws.
template <class F>
std::string error_of(F f) {
  try {
    (void)f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// Calls make(i), which returns a job, concurrently for n values of i.
template <class Make>
std::vector<Outcome> all_at_once(std::size_t n, Make make) {
  std::vector<Outcome> outcomes(n);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].job = make(i);
      } catch (const Error& e) {
        outcomes[i].error = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

inline std::vector<Outcome> connect_all(const std::vector<JobSpec>& specs) {
  return all_at_once(specs.size(), [&](std::size_t i) { return connect(specs[i]); });
}

inline std::vector<Outcome> shrink_all(std::span<Outcome> jobs) {
  return all_at_once(jobs.size(), [&](std::size_t i) { return jobs[i].job->shrink(); });
}

// A job of n ranks with this timeout, or 4, 16, ... times as long if the machine is too busy to
// assemble it. Updates `timeout`.
inline std::vector<Outcome> connect_in_time(int n, std::chrono::milliseconds& timeout) {
  for (;; timeout *= 4) {
    auto jobs = connect_all(Specs(n, timeout).specs);
    for (const Outcome& o : jobs)
      if (!o.job && timeout >= 8s) throw Error(o.error);
    if (std::ranges::all_of(jobs, [](const Outcome& o) { return o.job != nullptr; })) return jobs;
  }
}

// Runs body(job) for each rank on its own thread.
inline void on_each(std::vector<Outcome>& outcomes, const std::function<void(Job&)>& body) {
  std::vector<std::thread> threads;
  for (Outcome& o : outcomes) threads.emplace_back([&] { body(*o.job); });
  for (std::thread& t : threads) t.join();
}

// Leaves on every rank, the last one first, so that no destructor waits.
inline void leave_all(std::vector<Outcome>& outcomes) {
  for (std::size_t i = outcomes.size(); i-- > 0;) {
    if (outcomes[i].job) outcomes[i].job->leave();
  }
}

// Waits until the condition holds. The limit is generous: only a broken program reaches it.
inline bool eventually(const std::function<bool()>& condition) {
  const auto limit = Clock::now() + 30s;
  while (!condition()) {
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// Calls join_survivors() at this door and returns the mask of survivors, or the error.
inline std::string joined(const JobSpec& spec, const std::string& door) {
  std::string mask;
  const std::string error = error_of([&] { return join_survivors(spec, door, mask); });
  return error == "no error" ? mask : error;
}

// A job in which the test plays the ranks in `by_hand` over links; the other ranks have jobs.
struct HandJob {
  HandJob(Specs specs, const std::vector<Rank>& by_hand) {
    links.resize(specs.specs.size());
    jobs = all_at_once(links.size(), [&](std::size_t i) -> std::unique_ptr<Job> {
      const Rank r = static_cast<Rank>(i);
      if (std::ranges::find(by_hand, r) == by_hand.end()) return connect(specs[r]);
      links[i] = assemble_leaf(specs[r]);
      return nullptr;
    });
    for (const Outcome& o : jobs) EXPECT_EQ(o.error, "");
  }
  Job& job(Rank r) { return *jobs[static_cast<std::size_t>(r)].job; }
  Channel& link(Rank r) { return links[static_cast<std::size_t>(r)].channel; }
  // Sends everything that is queued.
  void flush(Rank r) {
    while (link(r).queued() > 0) {
      wait_for_room(r);
      link(r).flush();
    }
  }
  // Sends bytes until the other end closes the connection.
  void say(Rank r, std::string_view bytes) {
    while (!bytes.empty()) {
      wait_for_room(r);
      const ssize_t n = ::send(link(r).fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return;
      bytes.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
    }
  }
  // The next frame of this type for the rank; nothing if the connection ends.
  std::optional<std::string> hear(Rank r, wire::Type type) {
    std::optional<std::string> heard;
    const bool in_time = eventually([&] {
      wire::Frame frame;
      Channel::Got got;
      while ((got = link(r).receive(frame)) == Channel::Got::kFrame) {
        if (frame.type != type) continue;
        heard = frame.payload;
        return true;
      }
      return got == Channel::Got::kEnd;
    });
    EXPECT_TRUE(in_time);
    return heard;
  }

  std::vector<Outcome> jobs;
  std::vector<RootLink> links;

 private:
  void wait_for_room(Rank r) {
    pollfd polled{link(r).fd(), POLLOUT, 0};
    (void)::poll(&polled, 1, 100);
  }
};

// An address of this machine that is not loopback; "" if there is none.
inline std::string outer_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  std::string found;
  for (const ifaddrs* a = all; a && found.empty(); a = a->ifa_next) {
    if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || a->ifa_flags & IFF_LOOPBACK) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof text);
    found = text;
  }
  freeifaddrs(all);
  return found;
}

// The specs of a job whose rank 0 listens at `address`.
inline Specs specs_at(const std::string& address, int n) {
  const std::vector<std::uint16_t> any{0};
  const Fd listener = listen_on(address, any);
  Specs specs(n);
  ::close(specs[0].listen_fd);
  specs[0].listen_fd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  for (JobSpec& spec : specs.specs) {
    spec.address = address;
    spec.ports = {port_of(listener.get())};
  }
  return specs;
}

// A plain blocking connection to a port of this host.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Stranger() { ::close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  bool connected() const { return connected_; }
  void say(std::string_view bytes) const {
    (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string hear(std::size_t bytes) const {
    std::string heard(bytes, '\0');
    const ssize_t n = ::recv(fd_, heard.data(), bytes, MSG_WAITALL);
    heard.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return heard;
  }

 private:
  int fd_;
  bool connected_ = false;
};

}  // namespace weft::test
