// A job with only rank 0: the test supplies the other ranks' side of every exchange that sets up a
// transport.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topo/topology.h"
#include "transport/control/hmac.h"
#include "transport/job/bootstrap.h"

namespace weft::testing {

// The message of rank `from`, where `right` is rank 0's correct one. Empty: `right`.
using Forge = std::function<std::string(Rank from, std::string right)>;

// Letters of a ForgedJob: those that rank 0 sent, and those that the test delivers.
struct ForgedMail {
  struct Sent {
    Rank to = kNoRank;
    std::string bytes;
  };
  std::deque<Sent> sent;
  std::deque<Letter> coming;
};

class ForgedMailbox final : public Mailbox {
 public:
  explicit ForgedMailbox(std::shared_ptr<ForgedMail> mail) : mail_(std::move(mail)) {}
  void send(Rank to, std::string_view bytes) noexcept override {
    mail_->sent.push_back({to, std::string(bytes)});
  }
  bool receive(Letter& letter) noexcept override {
    if (mail_->coming.empty()) return false;
    letter = std::move(mail_->coming.front());
    mail_->coming.pop_front();
    return true;
  }
  bool waiting() const noexcept override { return !mail_->coming.empty(); }

 private:
  std::shared_ptr<ForgedMail> mail_;
};

class ForgedJob final : public Job {
 public:
  ForgedJob(int size, Forge forge) : size_(size), forge_(std::move(forge)) {}
  Rank rank() const override { return 0; }
  int size() const override { return size_; }
  std::vector<std::string> all_gather(std::string_view mine) override {
    std::vector<std::string> all(static_cast<std::size_t>(size_), std::string(mine));
    if (!said.empty()) return all;
    said = mine;
    for (Rank r = 1; forge_ && r < size_; ++r) all[static_cast<std::size_t>(r)] = forge_(r, said);
    return all;
  }
  // All ranks are in one group.
  std::vector<std::string> all_gather_in_group(std::string_view, std::string_view mine) override {
    return all_gather(mine);
  }
  std::vector<std::string> all_to_all(const std::vector<std::string>& mine) override {
    said_to = mine;
    std::vector<std::string> all = mine;
    for (Rank r = 1; forge_ && r < size_; ++r) {
      std::string& text = all[static_cast<std::size_t>(r)];
      text = forge_(r, text);
    }
    said = "to each";
    return all;
  }
  std::string key(std::string_view label) const override { return derive_key("forged", label); }
  std::unique_ptr<Mailbox> open_mailbox() override { return std::make_unique<ForgedMailbox>(mail); }
  bool failed() const noexcept override { return false; }
  Status failure() const override { return {}; }
  void report(const Status&, const Scope&) noexcept override {}
  std::vector<Rank> silent(std::chrono::milliseconds) const override { return {}; }
  void leave() noexcept override {}
  void abort(const char*) noexcept override {}
  std::unique_ptr<Job> shrink() override { return nullptr; }

  std::string said;                  // rank 0's first message: only that exchange is forged
  std::vector<std::string> said_to;  // likewise for a message to each rank
  std::shared_ptr<ForgedMail> mail = std::make_shared<ForgedMail>();

 private:
  int size_;
  Forge forge_;
};

// Each rank on a separate host with this rail.
inline Topology separate_hosts(int ranks, const Nic& rail) {
  std::vector<Place> hosts(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    hosts[r].host = "host" + std::to_string(r);
    hosts[r].rails = {rail};
  }
  return Topology(hosts);
}

// ---- for fuzzers: bytes of an input that may be too short ---------------------------------------

inline std::uint8_t byte_of(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<std::uint8_t>(text[i]) : std::uint8_t{0};
}

// Overwrites part of `right` with fuzzer input: the first byte is the offset, the second selects
// truncation there (1) or extension to the end of the input (2).
inline std::string laid_over(std::string right, std::string_view bytes) {
  if (bytes.size() < 2) return right;
  const std::size_t at = byte_of(bytes, 0), cut = byte_of(bytes, 1);
  bytes.remove_prefix(2);
  if (cut & 1) right.resize(std::min(right.size(), cut));
  if (cut & 2) right.resize(std::max(right.size(), at + bytes.size()));
  for (std::size_t i = 0; i < bytes.size() && at + i < right.size(); ++i) right[at + i] = bytes[i];
  return right;
}

}  // namespace weft::testing
