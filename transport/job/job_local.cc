// A job for tests: its ranks are objects in one process, without sockets. A Job destroyed without
// leave() is treated as dead, like a process that ended.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <utility>

#include "topo/base/mutex.h"
#include "transport/control/hmac.h"
#include "transport/control/socket.h"
#include "transport/job/bootstrap.h"

namespace weft {
namespace {

struct Meeting {
  explicit Meeting(int n)
      : size(n),
        part(static_cast<std::size_t>(n)),
        present(part.size()),
        left(part.size()),
        shrinks(part.size()) {
    for (Rank r = 0; r < n; ++r)
      offices.push_back(std::make_shared<PostOffice>(
          [this, r](std::uint32_t box, Rank to, std::string_view bytes) {
            if (to >= 0 && to < size) offices[static_cast<std::size_t>(to)]->deliver(box, r, bytes);
          }));
  }
  ~Meeting() {
    for (const auto& office : offices) office->close();
  }

  const int size;
  const std::chrono::milliseconds timeout = JobSpec{}.timeout;
  const std::string secret = random_bytes(kMacBytes);
  Mutex mutex;
  std::condition_variable_any changed;
  std::atomic<bool> failed{false};
  Status failure WEFT_GUARDED_BY(mutex);
  std::vector<JobFailure> failures WEFT_GUARDED_BY(mutex);
  std::atomic<std::size_t> heard{0};  // failures.size()
  // The current all_gather, and the result of the last completed one.
  std::vector<std::string> part WEFT_GUARDED_BY(mutex);
  std::vector<bool> present WEFT_GUARDED_BY(mutex);
  int arrived WEFT_GUARDED_BY(mutex) = 0;
  std::uint64_t done WEFT_GUARDED_BY(mutex) = 0;
  std::shared_ptr<const std::vector<std::string>> result WEFT_GUARDED_BY(mutex);
  std::string gather_error WEFT_GUARDED_BY(mutex);
  std::vector<bool> left WEFT_GUARDED_BY(mutex);
  // abort(): 0: not called, 1: the reason is being written, 2: written, 3: a reader has converted
  // it to a failure.
  std::atomic<int> aborted{0};
  Rank aborter = kNoRank;
  char reason[Job::kMostReason + 1] = {};
  // shrink(): the ranks that have called it, and its result.
  std::vector<bool> shrinks WEFT_GUARDED_BY(mutex);
  std::shared_ptr<Meeting> next WEFT_GUARDED_BY(mutex);
  std::vector<Rank> survivors WEFT_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<PostOffice>> offices;  // post offices by rank

  void take_abort() WEFT_REQUIRES(mutex) {
    if (aborted.load(std::memory_order_acquire) != 2) return;
    fail(Status(Code::kAborted, fmt::format("rank {} aborted: {}", aborter, reason), aborter), {});
    aborted = 3;
  }
  bool gone(std::size_t r) const WEFT_REQUIRES(mutex) {
    return left[r] || std::ranges::any_of(failures, [&](const JobFailure& f) {
             return f.status.code() == Code::kPeerFailed && f.status.rank() == static_cast<Rank>(r);
           });
  }

  void fail(const Status& status, const Scope& scope) WEFT_REQUIRES(mutex) {
    for (const JobFailure& f : failures)
      if (f.scope.ends == Scope::Ends::kAll || f.scope == scope) return;
    if (scope.ends_gathers() && !failed) {
      failure = status;
      failed = true;
    }
    failures.push_back({status, scope});
    heard = failures.size();
    changed.notify_all();
  }
  void fail_gather(const std::string& why) WEFT_REQUIRES(mutex) {
    if (gather_error.empty() && !failed) gather_error = why;
    changed.notify_all();
  }
};

class LocalJob : public Job {
 public:
  LocalJob(std::shared_ptr<Meeting> meeting, Rank rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  ~LocalJob() override {
    const MutexLock lock(meeting_->mutex);
    if (meeting_->left[me()]) return;
    const std::string who =
        describe_rank(rank_, host_label(), static_cast<std::uint64_t>(getpid()));
    meeting_->fail(
        Status(Code::kPeerFailed, who + " died: its Job was destroyed without leave()", rank_),
        {Scope::Ends::kRank, rank_});
  }
  Rank rank() const override { return rank_; }
  int size() const override { return meeting_->size; }
  std::string key(std::string_view label) const override {
    return derive_key(meeting_->secret, label);
  }

  std::vector<std::string> all_gather(std::string_view mine) override {
    const MutexLock one(one_gather_);
    Meeting& m = *meeting_;
    MutexLock lock(m.mutex);
    if (m.left[me()]) throw Error(fmt::format("rank {} called all_gather after leave()", rank_));
    if (!m.gather_error.empty()) throw Error(m.gather_error);
    m.take_abort();
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
    // No rank can be two gathers ahead of this rank, so the result remains valid until this rank
    // calls again.
    const bool in_time = m.changed.wait_for(lock, m.timeout, [&]() WEFT_REQUIRES(m.mutex) {
      return m.done >= number || m.failed || !m.gather_error.empty();
    });
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

  std::unique_ptr<Mailbox> open_mailbox() override { return meeting_->offices[me()]->open(); }

  bool failed() const noexcept override {
    return meeting_->failed.load(std::memory_order_relaxed) ||
           meeting_->aborted.load(std::memory_order_relaxed) == 2;
  }
  Status failure() const override {
    const MutexLock lock(meeting_->mutex);
    meeting_->take_abort();
    return meeting_->failure;
  }
  std::size_t heard() const noexcept override {
    return meeting_->heard.load(std::memory_order_relaxed) +
           (meeting_->aborted.load(std::memory_order_relaxed) == 2);
  }
  std::vector<JobFailure> failures(std::size_t first) const override {
    const MutexLock lock(meeting_->mutex);
    meeting_->take_abort();
    std::vector<JobFailure> all = meeting_->failures;
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(first, all.size())));
    return all;
  }
  void abort(const char* reason) noexcept override {
    int none = 0;
    if (!meeting_->aborted.compare_exchange_strong(none, 1)) return;
    meeting_->aborter = rank_;
    for (std::size_t i = 0; i < kMostReason && reason[i]; ++i) meeting_->reason[i] = reason[i];
    meeting_->aborted.store(2, std::memory_order_release);
  }
  std::vector<Rank> former_ranks() const override { return former_; }
  std::unique_ptr<Job> shrink() override {
    Meeting& m = *meeting_;
    MutexLock lock(m.mutex);
    m.take_abort();
    if (m.failures.empty()) throw Error("shrink: nothing has failed");
    if (m.gone(me())) throw Error(fmt::format("shrink: rank {} is not a survivor", rank_));
    m.shrinks[me()] = true;
    m.changed.notify_all();
    const auto complete = [&]() WEFT_REQUIRES(m.mutex) {
      for (std::size_t r = 0; r < m.left.size(); ++r)
        if (!m.shrinks[r] && !m.gone(r)) return false;
      return true;
    };
    m.changed.wait_for(lock, m.timeout,
                       [&]() WEFT_REQUIRES(m.mutex) { return m.next || complete(); });
    if (!m.next) {
      for (std::size_t r = 0; r < m.left.size(); ++r)
        if (m.shrinks[r]) m.survivors.push_back(static_cast<Rank>(r));
      m.next = std::make_shared<Meeting>(static_cast<int>(m.survivors.size()));
      m.changed.notify_all();
    }
    const auto at = std::find(m.survivors.begin(), m.survivors.end(), rank_);
    if (at == m.survivors.end())
      throw Error(fmt::format("the other ranks continued without rank {}", rank_));
    m.left[me()] = true;
    auto job = std::make_unique<LocalJob>(m.next, static_cast<Rank>(at - m.survivors.begin()));
    job->former_ = m.survivors;
    return job;
  }
  void report(const Status& failure, const Scope& scope) noexcept override {
    const MutexLock lock(meeting_->mutex);
    if (!failure.ok() && !meeting_->left[me()]) meeting_->fail(failure, scope);
  }
  // Threads of one process cannot be stopped individually.
  std::vector<Rank> silent(std::chrono::milliseconds) const override { return {}; }
  void leave() noexcept override {
    const MutexLock lock(meeting_->mutex);
    meeting_->left[me()] = true;
    meeting_->changed.notify_all();
    if (meeting_->arrived > 0)
      meeting_->fail_gather(fmt::format("rank {} has left the job", rank_));
  }

 private:
  std::size_t me() const { return static_cast<std::size_t>(rank_); }

  std::shared_ptr<Meeting> meeting_;
  const Rank rank_;
  Mutex one_gather_;
  std::vector<Rank> former_;
};

}  // namespace

std::vector<std::unique_ptr<Job>> local_jobs(int n) {
  if (n < 1) throw Error(fmt::format("invalid job size {}: at least 1 rank", n));
  const auto meeting = std::make_shared<Meeting>(n);
  std::vector<std::unique_ptr<Job>> jobs;
  for (Rank r = 0; r < n; ++r) jobs.push_back(std::make_unique<LocalJob>(meeting, r));
  return jobs;
}

}  // namespace weft
