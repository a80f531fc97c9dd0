// Jobs over real sockets for the rendezvous tests: as threads of one process, or as processes.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/control/socket.h"
#include "transport/job/bootstrap.h"

namespace weft::test {

using namespace std::chrono_literals;

// What each rank of a job is given. The listening socket is made here, so that the port is free.
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
      // A duplicate, because connect() takes it over.
      if (r == 0) spec.listen_fd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
      specs.push_back(spec);
    }
  }
  JobSpec& operator[](int r) { return specs[static_cast<std::size_t>(r)]; }
};

// What became of connect() on one rank.
struct Outcome {
  std::unique_ptr<Job> job;
  std::string error;
};

// Calls connect() for the given ranks at the same time.
inline std::vector<Outcome> connect_all(const std::vector<JobSpec>& specs) {
  std::vector<Outcome> outcomes(specs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].job = connect(specs[i]);
      } catch (const Error& e) {
        outcomes[i].error = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

// A job of n ranks that wait for `timeout`, or for 4, 16 .. times that where the machine is too
// busy to assemble it in that time. Sets `timeout` to what it became.
inline std::vector<Outcome> connect_in_time(int n, std::chrono::milliseconds& timeout) {
  for (;; timeout *= 4) {
    auto jobs = connect_all(Specs(n, timeout).specs);
    for (const Outcome& o : jobs)
      if (!o.job && timeout >= 8s) throw Error(o.error);
    if (std::ranges::all_of(jobs, [](const Outcome& o) { return o.job != nullptr; })) return jobs;
  }
}

// Runs body(job) for each rank in a thread of its own.
inline void on_each(std::vector<Outcome>& outcomes, const std::function<void(Job&)>& body) {
  std::vector<std::thread> threads;
  for (Outcome& o : outcomes) threads.emplace_back([&] { body(*o.job); });
  for (std::thread& t : threads) t.join();
}

// Leaves on every rank, the last rank first: so destroying them waits for nobody.
inline void leave_all(std::vector<Outcome>& outcomes) {
  for (std::size_t i = outcomes.size(); i-- > 0;) {
    if (outcomes[i].job) outcomes[i].job->leave();
  }
}

// Waits until the condition holds. Generous: only a broken program gets near the limit.
inline bool eventually(const std::function<bool()>& condition) {
  const auto limit = Clock::now() + 30s;
  while (!condition()) {
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// A plain connection to a port of this host, blocking.
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
