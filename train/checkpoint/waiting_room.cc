// Files of processes that wait to join a job. Starts no process.
#include "train/checkpoint/waiting_room.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "train/checkpoint/files.h"
#include "transport/control/socket.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLook = 10ms;  // poll interval for an invitation
constexpr const char* kInvited = ".invited";

}  // namespace

void WaitingRoom::open() const {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void WaitingRoom::close() const {
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
  std::ofstream(folder_ + "/over") << "\n";
}

// Counts only locked files: a dead process holds no lock.
std::vector<std::string> WaitingRoom::waiting() const {
  std::vector<std::string> all;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string path = entry.path();
    if (path.ends_with(kInvited) || path.ends_with("/over") || fs::exists(path + kInvited))
      continue;
    const Fd file = Fd::from([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
    if (file.get() >= 0 && flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      all.push_back(entry.path().filename());
  }
  std::sort(all.begin(), all.end());
  return all;
}

void WaitingRoom::invite(const std::string& name, Rank rank, int size,
                         const std::string& id) const {
  write_whole(folder_ + "/" + name + kInvited, fmt::format("{} {} {}", rank, size, id));
}

// The lock file names its holder; a holder on another host is treated as alive.
bool WaitingRoom::job_lives() const {
  std::ifstream file(save_ + "/lock");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  int pid = 0;
  char host[HOST_NAME_MAX + 1] = {};
  static_assert(HOST_NAME_MAX == 64);
  if (std::sscanf(text.c_str(), "process %d on host %64s", &pid, host) != 2) return true;
  return host_name() != host || kill(pid, 0) == 0 || errno != ESRCH;
}

std::optional<Invitation> WaitingRoom::wait(std::chrono::milliseconds timeout) const {
  fs::create_directories(folder_);
  const std::string path = fmt::format("{}/{}-{}", folder_, host_name(), getpid());
  const Fd mine =
      Fd::from([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (mine.get() < 0 || flock(mine.get(), LOCK_EX | LOCK_NB) != 0)
    throw Error(fmt::format("--elastic: cannot lock {}: {}; may this user write there?", path,
                            std::strerror(errno)));
  auto seen = std::chrono::steady_clock::now();
  for (;; std::this_thread::sleep_for(kLook)) {
    std::error_code ignored;
    if (fs::exists(path + kInvited, ignored)) {
      std::istringstream in(read_whole(path + kInvited));
      Invitation i;
      in >> i.rank >> i.size >> std::ws;
      std::getline(in, i.id);
      fs::remove(path + kInvited, ignored);
      fs::remove(path, ignored);
      return i;
    }
    if (fs::exists(folder_ + "/over", ignored)) break;
    const auto now = std::chrono::steady_clock::now();
    if (job_lives()) seen = now;
    if (now - seen > timeout) {
      fs::remove(path, ignored);
      throw Error(
          fmt::format("--elastic: the job that saves in {} has ended without a word; start it "
                      "again with --resume",
                      save_));
    }
  }
  std::error_code ignored;
  fs::remove(path, ignored);
  return {};
}

}  // namespace weft::train
