// A Job over memory shared by threads or by forked processes: enough to set up transports, without
// the rendezvous. It does not detect dead ranks.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "transport/control/hmac.h"
#include "transport/job/bootstrap.h"

namespace weft::testing {

// Created before the ranks start; every rank then creates its own SharedJob on it.
class SharedBoard {
 public:
  static constexpr std::size_t kMaxBytes = 16 << 10;
  static constexpr int kMaxRanks = 16;
  static constexpr std::size_t kMostLetter = 4 << 10;
  static constexpr std::uint32_t kMostLying = 64;
  struct Entry {
    std::atomic<int> round;
    std::size_t bytes;
    char text[kMaxBytes];
  };
  struct Memory {
    Entry entries[2][kMaxRanks];  // by parity of the round
    std::atomic<int> read[2];     // total ranks that have read everything, per parity
    std::atomic<int> flags[64];   // for the test
    struct Lying {
      std::atomic<std::uint32_t> turn;  // 2 n: letter n may be written; 2 n + 1: it is written
      Rank from;
      std::size_t bytes;
      char text[kMostLetter];
    };
    struct Letters {
      std::atomic<std::uint32_t> taken;
      Lying lying[kMostLying];
    } letters[kMaxRanks];  // by receiver
  };

  explicit SharedBoard(int size) : size_(size) {
    if (size > kMaxRanks) throw Error("SharedBoard: at most 16 ranks");
    void* p =
        mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<Memory*>(p);
  }
  ~SharedBoard() { munmap(memory_, sizeof(Memory)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  int size() const { return size_; }
  Memory& memory() { return *memory_; }
  std::atomic<int>& flag(int i) { return memory_->flags[i]; }

  // Waits for `ready`; false after 30 s.
  template <class Ready>
  static bool wait(Ready ready) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!ready()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }

 private:
  int size_;
  Memory* memory_;
};

// The only mailbox of a rank.
class SharedMailbox final : public Mailbox {
 public:
  SharedMailbox(SharedBoard& board, Rank rank) : board_(board), rank_(rank) {}
  void send(Rank to, std::string_view bytes) noexcept override {
    auto& letters = board_.memory().letters[to];
    const std::uint32_t n = letters.taken.fetch_add(1);
    auto& at = letters.lying[n % SharedBoard::kMostLying];
    const std::uint32_t turn = n / SharedBoard::kMostLying * 2;
    if (bytes.size() > sizeof at.text || !SharedBoard::wait([&] { return at.turn == turn; }))
      std::abort();
    at.from = rank_;
    at.bytes = bytes.size();
    std::memcpy(at.text, bytes.data(), bytes.size());
    at.turn = turn + 1;
  }
  bool receive(Letter& letter) noexcept override {
    if (!waiting()) return false;
    auto& at = next();
    letter = {at.from, std::string(at.text, at.bytes)};
    at.turn = at.turn + 1;
    ++received_;
    return true;
  }
  bool waiting() const noexcept override {
    return next().turn == received_ / SharedBoard::kMostLying * 2 + 1;
  }

 private:
  SharedBoard::Memory::Lying& next() const {
    return board_.memory().letters[rank_].lying[received_ % SharedBoard::kMostLying];
  }
  SharedBoard& board_;
  Rank rank_;
  std::uint32_t received_ = 0;
};

class SharedJob final : public Job {
 public:
  SharedJob(SharedBoard& board, Rank rank) : board_(board), rank_(rank) {}
  Rank rank() const override { return rank_; }
  int size() const override { return board_.size(); }

  std::vector<std::string> all_gather(std::string_view mine) override {
    if (mine.size() > SharedBoard::kMaxBytes) throw Error("SharedJob: more than 16 KiB");
    const int parity = round_ % 2;
    ++round_;
    // An entry is reused once all ranks have read its content of two rounds ago.
    auto& read = board_.memory().read[parity];
    const int before = (round_ - 1) / 2 * size();
    auto& entries = board_.memory().entries[parity];
    auto wait = [](auto ready) {
      if (!SharedBoard::wait(ready)) throw Error("SharedJob: a rank did not arrive");
    };
    wait([&] { return read.load() >= before; });
    std::memcpy(entries[rank_].text, mine.data(), mine.size());
    entries[rank_].bytes = mine.size();
    entries[rank_].round.store(round_);
    std::vector<std::string> all;
    for (int r = 0; r < size(); ++r) {
      wait([&] { return entries[r].round.load() == round_; });
      all.emplace_back(entries[r].text, entries[r].bytes);
    }
    read.fetch_add(1);
    return all;
  }

  std::string key(std::string_view label) const override { return derive_key("shared", label); }
  std::unique_ptr<Mailbox> open_mailbox() override {
    return std::make_unique<SharedMailbox>(board_, rank_);
  }
  bool failed() const noexcept override { return false; }
  Status failure() const override { return {}; }
  void report(const Status&, const Scope&) noexcept override {}
  std::vector<Rank> silent(std::chrono::milliseconds) const override { return {}; }
  void leave() noexcept override {}
  void abort(const char*) noexcept override {}
  std::unique_ptr<Job> shrink() override { throw Error("SharedJob: shrink"); }

 private:
  SharedBoard& board_;
  Rank rank_;
  int round_ = 0;
};

}  // namespace weft::testing
