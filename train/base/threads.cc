// The thread pool of a rank: threads take pieces from a ticket. Does not depend on operators.
#include "train/base/threads.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "topo/base/thread.h"

namespace weft::train {
namespace {

std::atomic<int> g_threads{1};
thread_local bool t_inside = false;  // inside a piece: a nested in_pieces() is a plain loop
thread_local std::function<void()> t_between;
thread_local std::chrono::steady_clock::time_point t_last;

// A 10 GB/s link moves a slice in less time; a call of poll() takes a few us.
constexpr std::chrono::microseconds kBetween{300};

void between_pieces() {
  if (!t_between) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - t_last < kBetween) return;
  auto f = std::exchange(t_between, nullptr);
  f();  // t_inside is set inside a round, so f's own pieces run as a loop
  t_between = std::move(f);
  t_last = std::chrono::steady_clock::now();
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The helper threads of one rank. After an operator they spin for a moment, since the next one
// usually follows at once, and then sleep. A helper that waits for a core delays the round only if
// it has taken a piece. Only the rank's thread calls run().
class Team {
 public:
  explicit Team(int threads) {
    try {
      for (int w = 1; w < threads; ++w)
        helpers_.push_back(start_thread("a thread of the operators (one per core the rank may use)",
                                        [this, w] { help(static_cast<std::size_t>(w)); }));
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Team() { stop(); }
  std::size_t size() const { return helpers_.size() + 1; }

  void run(std::size_t pieces, const std::function<void(std::size_t, std::size_t)>& f) {
    f_ = &f;
    done_.store(0, std::memory_order_relaxed);
    ticket_.store(static_cast<std::uint64_t>(pieces) << 32, std::memory_order_release);
    round_.fetch_add(1);
    round_.notify_all();
    work(0);
    for (int tries = 0; done_.load(std::memory_order_acquire) != pieces && tries < kTries; ++tries)
      pause();
    for (std::size_t d; (d = done_.load(std::memory_order_acquire)) != pieces;)
      done_.wait(d, std::memory_order_acquire);
  }

 private:
  void stop() {
    stop_ = true;
    round_.fetch_add(1);
    round_.notify_all();
    for (auto& t : helpers_) t.join();
  }

  // About 50 us: longer than the gap between operators, shorter than most waits for other ranks.
  static constexpr int kTries = 2000;

  // A ticket is the number of pieces and the next piece's index, in one atomic, so that a late
  // helper cannot mix up two rounds. f_ is valid as long as a piece of the round is not done.
  void work(std::size_t worker) {
    t_inside = true;
    for (;;) {
      const std::uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
      const std::uint64_t pieces = ticket >> 32, piece = ticket & 0xffffffff;
      if (piece >= pieces) break;
      (*f_)(piece, worker);
      if (worker == 0) between_pieces();
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) done_.notify_one();
    }
    t_inside = false;
  }
  void help(std::size_t worker) {
    for (unsigned seen = 0;;) {
      for (int tries = 0; round_.load(std::memory_order_relaxed) == seen && tries < kTries; ++tries)
        pause();
      round_.wait(seen);
      seen = round_;
      if (stop_) return;
      work(worker);
    }
  }

  const std::function<void(std::size_t, std::size_t)>* f_ = nullptr;
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<unsigned> round_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> helpers_;  // last: its threads use the members above
};

Team& team(int threads) {
  thread_local std::unique_ptr<Team> mine;
  if (!mine || mine->size() != static_cast<std::size_t>(threads)) {
    mine.reset();
    mine = std::make_unique<Team>(threads);
  }
  return *mine;
}

}  // namespace

void set_between_pieces(std::function<void()> f) { t_between = std::move(f); }

void set_operator_threads(int threads) { g_threads = std::max(1, threads); }
int operator_threads() { return g_threads; }

void in_pieces(std::size_t pieces, const std::function<void(std::size_t, std::size_t)>& f) {
  const int threads = operator_threads();
  if (threads == 1 || pieces <= 1 || t_inside) {
    for (std::size_t i = 0; i < pieces; ++i) {
      f(i, 0);
      between_pieces();
    }
    return;
  }
  team(threads).run(pieces, f);
}

}  // namespace weft::train
