// Sends datagrams as letters. This file does not depend on their contents.
#include "transport/rails/datagram_channel_letters.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "topo/base/log.h"
#include "topo/sysfs.h"

namespace weft {
namespace {

class LetterPaths final : public DatagramChannel {
 public:
  LetterPaths(std::unique_ptr<Mailbox> mail, const Place& place) : mail_(std::move(mail)) {
    for (const Nic& nic : place.rails) devices_.push_back(nic.name);
  }
  void send(Rank to, int rail, std::string_view bytes) noexcept override {
    try {
      std::string text(1, static_cast<char>(rail));
      mail_->send(to, text.append(bytes));
    } catch (const std::exception& e) {
      log().debug("weft: rail {}: a datagram could not be made: {}", rail, e.what());
    }
  }
  bool receive(Datagram& datagram) noexcept override {
    for (Letter letter; mail_->receive(letter);) {
      if (letter.bytes.empty()) continue;
      const auto rail = static_cast<unsigned char>(letter.bytes[0]);
      if (rail >= devices_.size()) continue;
      datagram.from = letter.from;
      datagram.rail = rail;
      datagram.bytes = std::move(letter.bytes.erase(0, 1));
      return true;
    }
    return false;
  }
  bool link_up(int rail) noexcept override {
    try {
      return rdma_link_up("/sys", devices_[static_cast<std::size_t>(rail)]);
    } catch (const std::exception&) {
      return true;
    }
  }
  void arm(std::vector<int>& fds) noexcept override {
    if (mail_->fd() >= 0) fds.push_back(mail_->fd());
  }

 private:
  std::unique_ptr<Mailbox> mail_;
  std::vector<std::string> devices_;  // by rail
};

}  // namespace

std::unique_ptr<DatagramChannel> make_letter_paths(Job& job, const Topology& topology) {
  for (Rank r = 0; r < topology.nranks(); ++r)
    if (!std::ranges::all_of(topology.place(r).rails, &Nic::rdma)) return nullptr;
  auto mail = job.open_mailbox();
  if (!mail) return nullptr;
  return std::make_unique<LetterPaths>(std::move(mail), topology.place(job.rank()));
}

bool rdma_link_up(const std::string& root, const std::string& device) {
  bool any = false;
  const std::string ports = root + "/class/infiniband/" + device + "/ports/";
  for (const std::string& port : sysfs::list(ports)) {
    const std::string state = sysfs::read_line(ports + port + "/state");  // "4: ACTIVE"
    if (state.starts_with("4:")) return true;
    any = any || !state.empty();
  }
  return !any;
}

}  // namespace weft
