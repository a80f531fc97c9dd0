// A job whose ranks are objects of one process, without sockets: for tests. A Job destroyed
// without leave() has died, as a process would have.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "transport/control_socket.h"
#include "transport/rendezvous.h"

namespace weft {
namespace {

struct Meeting {
  explicit Meeting(int n)
      : size(n), part(static_cast<std::size_t>(n)), present(part.size()), left(part.size()) {}

  const int size;
  const std::chrono::milliseconds timeout = JobSpec{}.timeout;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> failed{false};
  Status failure;
  // The all_gather under way, and the result of the one done last.
  std::vector<std::string> part;
  std::vector<bool> present;
  int arrived = 0;
  std::uint64_t done = 0;
  std::shared_ptr<const std::vector<std::string>> result;
  std::string gather_error;
  std::vector<bool> left;

  void fail(const Status& status) {
    if (failed.load(std::memory_order_relaxed)) return;
    failure = status;
    failed.store(true, std::memory_order_relaxed);
    changed.notify_all();
  }
  void fail_gather(const std::string& why) {
    if (gather_error.empty() && !failed) gather_error = why;
    changed.notify_all();
  }
};

class LocalJob : public Job {
 public:
  LocalJob(std::shared_ptr<Meeting> meeting, Rank rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  ~LocalJob() override {
    const std::lock_guard lock(meeting_->mutex);
    if (meeting_->left[me()]) return;
    const std::string who =
        describe_rank(rank_, host_label(), static_cast<std::uint64_t>(getpid()));
    meeting_->fail(
        Status(Code::kPeerFailed, who + " died: its Job was destroyed without leave()", rank_));
  }
  Rank rank() const override { return rank_; }
  int size() const override { return meeting_->size; }

  std::vector<std::string> all_gather(std::string_view mine) override {
    const std::lock_guard one(one_gather_);
    Meeting& m = *meeting_;
    std::unique_lock lock(m.mutex);
    if (m.left[me()]) throw Error(fmt::format("rank {} called all_gather after leave()", rank_));
    if (!m.gather_error.empty()) throw Error(m.gather_error);
    if (m.failed) throw Error(m.failure.to_string());
    for (Rank r = 0; r < m.size; ++r) {
      if (m.left[static_cast<std::size_t>(r)])
        m.fail_gather(fmt::format("rank {} has left the job", r));
    }
    const std::uint64_t number = m.done + 1;
    m.part[me()] = mine;
    m.present[me()] = true;
    if (++m.arrived == m.size) {
      m.result = std::make_shared<const std::vector<std::string>>(
          std::exchange(m.part, std::vector<std::string>(m.present.size())));
      m.present.assign(m.present.size(), false);
      m.arrived = 0;
      m.done = number;
      m.changed.notify_all();
    }
    // Nobody can be two further on before this rank comes again, so the result stays.
    const bool in_time = m.changed.wait_for(
        lock, m.timeout, [&] { return m.done >= number || m.failed || !m.gather_error.empty(); });
    if (m.done >= number) return *m.result;
    if (!in_time) {
      std::vector<Rank> late;
      for (Rank r = 0; r < m.size; ++r) {
        if (!m.present[static_cast<std::size_t>(r)]) late.push_back(r);
      }
      m.fail_gather(fmt::format("{} did not arrive at all_gather number {} within {} ms",
                                name_ranks(late), number, m.timeout.count()));
    }
    throw Error(m.gather_error.empty() ? m.failure.to_string() : m.gather_error);
  }

  bool failed() const noexcept override { return meeting_->failed.load(std::memory_order_relaxed); }
  Status failure() const override {
    const std::lock_guard lock(meeting_->mutex);
    return meeting_->failure;
  }
  void report(const Status& failure) noexcept override {
    const std::lock_guard lock(meeting_->mutex);
    if (!failure.ok() && !meeting_->left[me()]) meeting_->fail(failure);
  }
  // Threads of one process do not stop alone.
  std::vector<Rank> silent(std::chrono::milliseconds) const override { return {}; }
  void leave() noexcept override {
    const std::lock_guard lock(meeting_->mutex);
    meeting_->left[me()] = true;
    if (meeting_->arrived > 0)
      meeting_->fail_gather(fmt::format("rank {} has left the job", rank_));
  }

 private:
  std::size_t me() const { return static_cast<std::size_t>(rank_); }

  std::shared_ptr<Meeting> meeting_;
  const Rank rank_;
  std::mutex one_gather_;
};

}  // namespace

std::vector<std::unique_ptr<Job>> local_jobs(int n) {
  if (n < 1) throw Error(fmt::format("a job of {} ranks cannot be: at least 1", n));
  const auto meeting = std::make_shared<Meeting>(n);
  std::vector<std::unique_ptr<Job>> jobs;
  for (Rank r = 0; r < n; ++r) jobs.push_back(std::make_unique<LocalJob>(meeting, r));
  return jobs;
}

}  // namespace weft
