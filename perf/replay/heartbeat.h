// Prints the current phase and progress of a long command every two seconds.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <semaphore>
#include <string>
#include <thread>

#include "perf/cli/table.h"

namespace weft::replay {

class Heartbeat {
 public:
  // wanted: false on ranks other than 0, which print nothing.
  explicit Heartbeat(bool wanted, std::FILE* out = stderr,
                     std::chrono::milliseconds silence = std::chrono::seconds(2))
      : out_(out), silence_(silence) {
    if (wanted) thread_ = std::thread([this] { run(); });
  }
  ~Heartbeat() {
    stop_.release();
    if (thread_.joinable()) thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Begins a phase of `of` parts (0: unknown); `what` must be a string literal.
  void phase(const char* what, std::uint64_t of = 0) {
    of_ = of;
    done_ = 0;
    what_ = what;
  }
  void done_one() { done_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void run() {
    const bool terminal = out_ == stderr && obeys_escapes() && isatty(STDERR_FILENO) != 0;
    Progress line(terminal);
    while (!stop_.try_acquire_for(silence_)) {
      std::string text = what_.load();
      if (const std::uint64_t of = of_) text += fmt::format(": {} of {}", done_.load(), of);
      if (terminal) {
        line.show(text);
      } else {
        fmt::print(out_, "weft replay: {}\n", text);
        std::fflush(out_);
      }
    }
  }

  std::FILE* const out_;
  const std::chrono::milliseconds silence_;
  std::atomic<const char*> what_ = "at work";
  std::atomic<std::uint64_t> done_ = 0, of_ = 0;
  std::binary_semaphore stop_{0};
  std::thread thread_;
};

}  // namespace weft::replay
