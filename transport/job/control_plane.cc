// The common parts of the control plane. Does not depend on the connection topology.
#include "transport/job/control_plane.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "topo/base/thread.h"
#include "transport/control/hmac.h"

namespace weft {
namespace {

class PlaneJob : public Job {
 public:
  PlaneJob(std::unique_ptr<Plane> plane, std::vector<Rank> former)
      : plane_(std::move(plane)), generation_(fork_generation()), former_(std::move(former)) {
    plane_->start();
  }
  ~PlaneJob() override {
    if (here()) {
      plane_->stop();
    } else {
      // In a forked child the mutex may be locked and the thread does not exist, so the plane
      // cannot be destroyed. The list keeps it reachable, so that leak checkers do not report it.
      static auto* const remains = new std::vector<Plane*>;
      remains->push_back(plane_.release());
    }
  }
  Rank rank() const override { return plane_->rank(); }
  int size() const override { return plane_->size(); }
  std::string key(std::string_view label) const override { return plane_->key(label); }
  bool failed() const noexcept override { return plane_->failed(); }
  Status failure() const override { return here() ? plane_->failure() : forked(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    if (!here()) forked().check();
    return plane_->all_gather(mine);
  }
  std::vector<std::string> all_to_all(const std::vector<std::string>& mine) override {
    if (!here()) forked().check();
    return plane_->all_gather(wire::encode_parts(mine), wire::Gathering::kForEach);
  }
  std::vector<std::string> all_gather_in_group(std::string_view group,
                                               std::string_view mine) override {
    if (!here()) forked().check();
    return plane_->all_gather(wire::encode_parts({std::string(group), std::string(mine)}),
                              wire::Gathering::kInGroup);
  }
  std::vector<std::string> gather(std::string_view mine) override {
    if (!here()) forked().check();
    return plane_->all_gather(mine, wire::Gathering::kToRoot);
  }
  std::string scatter(const std::vector<std::string>& parts) override {
    if (!here()) forked().check();
    const std::string mine = rank() == 0 ? wire::encode_parts(parts) : std::string();
    return plane_->all_gather(mine, wire::Gathering::kFromRoot).at(0);
  }
  std::unique_ptr<Mailbox> open_mailbox() override {
    return here() ? plane_->open_mailbox() : nullptr;
  }
  std::size_t heard() const noexcept override { return plane_->heard(); }
  std::vector<JobFailure> failures(std::size_t first) const override {
    return here() ? plane_->failures(first) : std::vector<JobFailure>{};
  }
  void report(const Status& failure, const Scope& scope) noexcept override {
    if (here()) plane_->report(failure, scope);
  }
  std::vector<std::string> inquire(std::chrono::milliseconds limit) override {
    return here() ? plane_->inquire(limit) : std::vector<std::string>{};
  }
  void set_witness(Witness* witness) override {
    if (here()) plane_->set_witness(witness);
  }
  std::vector<Rank> silent(std::chrono::milliseconds age) const override {
    return here() ? plane_->silent(age) : std::vector<Rank>{};
  }
  void leave() noexcept override {
    if (!here()) return;
    plane_->await_abort();
    plane_->leave();
  }
  void abort(const char* reason) noexcept override {
    if (here()) plane_->abort(reason);
  }
  std::unique_ptr<Job> shrink() override {
    if (!here()) forked().check();
    plane_->await_abort();
    Plane::Shrunk shrunk = plane_->shrink();
    return make_job(std::move(shrunk.plane), std::move(shrunk.survivors));
  }
  std::vector<Rank> former_ranks() const override { return former_; }

 private:
  bool here() const noexcept { return generation_ == fork_generation(); }
  static Status forked() {
    return Status(Code::kAborted,
                  "this job belongs to the process that connected: a forked child cannot use it");
  }

  std::unique_ptr<Plane> plane_;
  int generation_;
  std::vector<Rank> former_;
};

}  // namespace

std::unique_ptr<Job> make_job(std::unique_ptr<Plane> plane, std::vector<Rank> former) {
  return std::make_unique<PlaneJob>(std::move(plane), std::move(former));
}

std::string Plane::key(std::string_view label) const { return derive_key(spec_.secret, label); }

Plane::Plane(const JobSpec& spec, std::chrono::milliseconds period)
    : spec_(spec),
      rank_(spec.rank),
      size_(spec.size),
      timeout_(spec.timeout),
      period_(period),
      office_(
          std::make_shared<PostOffice>([this](std::uint32_t box, Rank to, std::string_view bytes) {
            const Lock lock(mutex_);
            if (to < 0 || to >= size_ || left_ || shrinking_ || stopping_ || handed_over_) return;
            if (to == rank_) return office_->deliver(box, rank_, bytes);
            carry(box, to, bytes);
            ring(wake_);
          })) {}

Status Plane::failure() const {
  const Lock lock(mutex_);
  return failure_;
}

void Plane::set_failure(const Status& failure) {
  failure_ = failure;
  failed_.store(!failure.ok(), std::memory_order_relaxed);
  changed_.notify_all();
}

std::vector<JobFailure> Plane::failures(std::size_t first) const {
  const Lock lock(mutex_);
  first = std::min(first, failures_.size());
  return {failures_.begin() + static_cast<std::ptrdiff_t>(first), failures_.end()};
}

void Plane::hear(const Status& failure, const Scope& scope) {
  failures_.push_back({failure, scope});
  decided_.insert(scope);
  heard_ = failures_.size();
  if (inquiring_ && !for_outsiders_) end_inquiry();  // callers still waiting start another
  changed_.notify_all();
}

bool Plane::decided(const Scope& scope) const {
  return decided_.contains(scope) ||
         (!decided_.empty() && decided_.begin()->ends == Scope::Ends::kAll);
}

bool Plane::blamed(Rank rank, std::optional<Code> code) const {
  const auto is = [&](const Status& s) {
    return !s.ok() && s.rank() == rank && (!code || s.code() == *code);
  };
  return is(failure_) || std::ranges::any_of(failures_, is, &JobFailure::status);
}

void Plane::fail_gather(const std::string& why) {
  // If the job has already failed, the gather failed as a consequence: keep the first failure as
  // the error.
  if (gather_error_.empty() && !failed()) gather_error_ = why;
  changed_.notify_all();
}

void Plane::finish_gather(std::vector<std::string> parts) {
  parts_ = std::move(parts);
  gathered_ = true;
  changed_.notify_all();
}

std::vector<std::string> Plane::all_gather(std::string_view mine, wire::Gathering what) {
  const MutexLock one(one_gather_);
  Lock lock(mutex_);
  if (left_) throw Error(fmt::format("rank {} called all_gather after leave()", rank_));
  if (!gather_error_.empty()) throw GatherFailed(gather_error_);
  if (failed()) throw Error(failure_.to_string());
  ++sequence_;
  gathered_ = false;
  contribute(mine, what);
  ring(wake_);  // the thread sends the bytes that the socket did not accept
  // The thread enforces the deadline and ends this wait by one of these conditions.
  changed_.wait(lock, [&]() WEFT_REQUIRES(mutex_) {
    return gathered_ || !gather_error_.empty() || failed() || stopping_;
  });
  if (gathered_) return std::exchange(parts_, {});
  if (!gather_error_.empty()) throw GatherFailed(gather_error_);
  if (failed()) throw Error(failure_.to_string());
  throw Error(fmt::format("rank {}: its job was destroyed during all_gather", rank_));
}

void Plane::report(const Status& failure, const Scope& scope) noexcept {
  if (failure.ok()) return;
  Lock lock(mutex_);
  if (left_) return;
  if (!decided(scope)) {
    tell(failure, scope);
    ring(wake_);
  }
  await_verdict(scope, lock);  // another rank's report may have been first
}

void Plane::abort(const char* reason) noexcept {
  int none = 0;
  if (!aborted_.compare_exchange_strong(none, 1)) return;
  for (std::size_t i = 0; i < Job::kMostReason && reason[i]; ++i) abort_reason_[i] = reason[i];
  aborted_.store(2, std::memory_order_release);
  ring(wake_);  // the thread notifies the other ranks
}

void Plane::await_abort() noexcept {
  Lock lock(mutex_);
  changed_.wait(lock, [&]() WEFT_REQUIRES(mutex_) {
    return aborted_ == 0 || aborted_ == 3 || handed_over_ || stopping_;  // no thread to send it
  });
}

void Plane::check_shrink() const {
  if (left_) throw Error(fmt::format("rank {} called shrink after leave()", rank_));
  if (!failed() && failures_.empty())
    throw Error("shrink: no failure was reported, so there is no rank to exclude");
  if (taken_for_dead(rank_))
    throw Error(
        fmt::format("the other ranks continue without rank {}: {}", rank_, failure_.message()));
}

void Plane::retire(Lock& lock) {
  handed_over_ = true;
  left_ = true;
  changed_.notify_all();
  ring(wake_);
  lock.without([&] {
    if (thread_.joinable()) thread_.join();
    office_->close();
  });
}

JobSpec Plane::shrunk_spec(std::string_view mask, std::vector<Rank>& survivors) const {
  JobSpec spec = spec_;
  spec.listen_fd = -1;
  for (Rank r = 0; r < size_; ++r) {
    if (mask[static_cast<std::size_t>(r)] != '1') continue;
    if (r == rank_) spec.rank = static_cast<Rank>(survivors.size());
    survivors.push_back(r);
  }
  spec.size = static_cast<int>(survivors.size());
  return spec;
}

std::string renumber(const std::string& who, Rank rank) {
  const auto at = who.find(" (");
  return fmt::format("rank {}{}", rank, at == std::string::npos ? "" : who.substr(at));
}

void Plane::start() {
  wake_ = make_wake_fd();
  thread_ = start_thread("the thread of the control plane", [this] { run(); });
}

void Plane::stop() noexcept {
  office_->close();
  {
    const Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  ring(wake_);
  if (thread_.joinable()) thread_.join();
}

void Plane::run() {
  std::vector<pollfd> polled;
  Lock lock(mutex_);
  for (;;) {
    polled.assign(1, {wake_.get(), POLLIN, 0});
    auto now = Clock::now();
    const auto until = prepare(polled, now);
    lock.unlock();
    (void)::poll(polled.data(), polled.size(), poll_ms(until, now));
    if (polled[0].revents != 0) drain(wake_);
    lock.lock();
    if (handed_over_) return;
    if (aborted_.load(std::memory_order_acquire) == 2) {
      aborted_ = 3;
      changed_.notify_all();
      if (!decided({}) && !left_)
        tell({Code::kAborted, fmt::format("rank {} aborted: {}", rank_, abort_reason_), rank_}, {});
    }
    now = Clock::now();
    if (!serve(polled, now) || handed_over_) return;
    tick_ = now;
  }
}

}  // namespace weft
