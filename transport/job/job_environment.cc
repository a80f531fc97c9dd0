// job_from_environment() reads and checks the launcher's variables.
#include "transport/job/job_environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "topo/base/log.h"
#include "transport/control/hmac.h"
#include "transport/job/job_assembly.h"
#include "transport/loaded/loaded.h"

namespace weft {
namespace {

constexpr std::int64_t kSizeMax = 1 << 20;

// "host:port" or "[v6]:port"
void parse_root(const std::string& root, JobSpec& spec) {
  const std::size_t colon = root.rfind(':');
  spec.address = root.substr(0, colon);
  if (colon == std::string::npos || spec.address.empty() || spec.address == "[]") {
    throw Error(fmt::format("WEFT_ROOT=\"{}\" is not host:port, as in 10.0.0.1:29400", root));
  }
  if (spec.address.front() == '[' && spec.address.back() == ']') {
    spec.address = spec.address.substr(1, spec.address.size() - 2);
  } else if (spec.address.find(':') != std::string::npos) {
    throw Error(fmt::format("WEFT_ROOT=\"{}\": write an IPv6 address as [address]:port", root));
  }
  const std::string port = root.substr(colon + 1);
  spec.ports = {static_cast<std::uint16_t>(parse_number("the port in WEFT_ROOT", port, 1, 65535))};
}

// Returns the listening socket that weft launch opened for rank 0. Only the first job can use it;
// later jobs listen on the same port themselves.
int inherited_listener() {
  if (!is_set("WEFT_ROOT_FD")) return -1;
  const int fd = static_cast<int>(required_number("WEFT_ROOT_FD", 0, 1 << 24));
  if (listen_fd_taken(fd)) return -1;
  int listening = 0;
  socklen_t bytes = sizeof listening;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0 || listening == 0) {
    throw Error(
        fmt::format("WEFT_ROOT_FD={} is not a listening socket{}: unset it, and rank 0 "
                    "listens on the port of WEFT_ROOT by itself",
                    fd, errno == EBADF ? " but closed" : ""));
  }
  (void)fcntl(fd, F_SETFD, FD_CLOEXEC);  // not inherited by rank 0's children
  return fd;
}

void read_weft(JobSpec& spec) {
  spec.launcher = "weft";
  spec.size = static_cast<int>(required_number("WEFT_SIZE", 1, kSizeMax));
  spec.rank = static_cast<Rank>(required_number("WEFT_RANK", 0, spec.size - 1));
  if (spec.size == 1) return;
  if (!is_set("WEFT_ROOT")) {
    throw Error("WEFT_RANK is set but WEFT_ROOT is not: set it to host:port of rank 0");
  }
  parse_root(environment("WEFT_ROOT"), spec);
  spec.secret = environment("WEFT_SECRET");
  if (spec.secret.empty()) {
    throw Error(
        "WEFT_RANK is set but WEFT_SECRET is not: set it to the same random text on every "
        "rank (weft launch does)");
  }
  if (spec.rank == 0) spec.listen_fd = inherited_listener();
}

}  // namespace

bool torchrun_present() { return is_set("RANK") && is_set("WORLD_SIZE"); }

std::vector<std::uint16_t> torchrun_ports(std::uint16_t master_port, std::string_view run_id) {
  constexpr std::size_t kCount = 8;
  constexpr unsigned kLeast = 10000, kSpan = 22768;
  std::vector<std::uint16_t> ports;
  for (unsigned round = 0; ports.size() < kCount; ++round) {
    const std::string digest =
        hmac_sha256("weft torchrun ports", fmt::format("{} {} {}", round, master_port, run_id));
    for (std::size_t i = 0; i + 1 < digest.size() && ports.size() < kCount; i += 2) {
      const unsigned value =
          static_cast<unsigned char>(digest[i]) << 8 | static_cast<unsigned char>(digest[i + 1]);
      const auto port = static_cast<std::uint16_t>(kLeast + value % kSpan);
      const bool taken =
          port == master_port || std::find(ports.begin(), ports.end(), port) != ports.end();
      if (!taken) ports.push_back(port);
    }
  }
  return ports;
}

void read_torchrun(JobSpec& spec) {
  spec.launcher = "torchrun";
  spec.size = static_cast<int>(required_number("WORLD_SIZE", 1, kSizeMax));
  spec.rank = static_cast<Rank>(required_number("RANK", 0, spec.size - 1));
  if (spec.size == 1) return;
  spec.address = environment("MASTER_ADDR");
  if (spec.address.empty()) {
    throw Error("RANK and WORLD_SIZE are set but MASTER_ADDR is not: set it to rank 0's host");
  }
  const auto port = static_cast<std::uint16_t>(required_number("MASTER_PORT", 1, 65535));
  const std::string run_id = environment("TORCHELASTIC_RUN_ID");
  spec.ports = torchrun_ports(port, run_id);
  spec.secret = environment("WEFT_SECRET");
  if (spec.secret.empty()) {
    spec.secret =
        hmac_sha256("weft torchrun secret", fmt::format("{}\n{}\n{}", run_id, spec.address, port));
    if (spec.rank == 0)
      log().error(
          "weft: this job is unprotected: torchrun provides no secret, so any host that can reach "
          "{} and knows the run id \"{}\" and port {} can join; set WEFT_SECRET to the same random "
          "text on every rank",
          spec.address, run_id, port);
  }
}

bool pmix_present() { return is_set("PMIX_NAMESPACE") && is_set("PMIX_RANK"); }

JobSpec job_from_environment() {
  JobSpec spec;
  if (is_set("WEFT_TIMEOUT_MS")) {
    constexpr std::int64_t kDay = 24LL * 3600 * 1000;
    spec.timeout = std::chrono::milliseconds(required_number("WEFT_TIMEOUT_MS", 1, kDay));
  }
  if (is_set("WEFT_RANK")) {
    read_weft(spec);
    return spec;
  }
  if (is_set("WEFT_SIZE")) {
    throw Error("WEFT_SIZE is set but WEFT_RANK is not: set both, or neither for a single process");
  }
  if (pmix_present()) {
#if WEFT_HAVE_PMIX
    if (pmix_library() || !torchrun_present()) {
      read_pmix(spec);
      return spec;
    }
#else
    if (!torchrun_present()) {
      throw Error(
          fmt::format("PMIX_RANK={} is set, but this weft was built without PMIx: install "
                      "libpmix-dev and build again, or use weft launch",
                      environment("PMIX_RANK")));
    }
#endif
  }
  if (torchrun_present()) read_torchrun(spec);
  return spec;
}

}  // namespace weft
