// Polls the rails, so that peers get answers, while this rank waits for other ranks on the control
// plane.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "coll/runtime/core.h"
#include "topo/base/thread.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// The core's job, with answer_while() around its gathers.
class AnsweringJob final : public Job {
 public:
  explicit AnsweringJob(Core& core) : core_(core) {}
  Rank rank() const override { return job().rank(); }
  int size() const override { return job().size(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    std::vector<std::string> all;
    core_.waiting.answer_while([&] { all = job().all_gather(mine); });
    return all;
  }
  std::vector<std::string> all_to_all(const std::vector<std::string>& mine) override {
    std::vector<std::string> all;
    core_.waiting.answer_while([&] { all = job().all_to_all(mine); });
    return all;
  }
  std::vector<std::string> gather(std::string_view mine) override {
    std::vector<std::string> all;
    core_.waiting.answer_while([&] { all = job().gather(mine); });
    return all;
  }
  std::string scatter(const std::vector<std::string>& parts) override {
    std::string mine;
    core_.waiting.answer_while([&] { mine = job().scatter(parts); });
    return mine;
  }
  std::string key(std::string_view label) const override { return job().key(label); }
  std::unique_ptr<Mailbox> open_mailbox() override { return job().open_mailbox(); }
  bool failed() const noexcept override { return job().failed(); }
  Status failure() const override { return job().failure(); }
  std::size_t heard() const noexcept override { return job().heard(); }
  std::vector<JobFailure> failures(std::size_t first) const override {
    return job().failures(first);
  }
  void report(const Status& failure, const Scope& scope) noexcept override {
    job().report(failure, scope);
  }
  std::vector<Rank> silent(std::chrono::milliseconds age) const override {
    return job().silent(age);
  }
  std::vector<std::string> inquire(std::chrono::milliseconds limit) override {
    return job().inquire(limit);
  }
  void set_witness(Witness* witness) override { job().set_witness(witness); }
  void leave() noexcept override { job().leave(); }
  void abort(const char* reason) noexcept override { job().abort(reason); }
  std::unique_ptr<Job> shrink() override { return job().shrink(); }
  std::vector<Rank> former_ranks() const override { return job().former_ranks(); }

 private:
  Job& job() const { return *core_.job; }
  Core& core_;
};

}  // namespace

std::unique_ptr<Job> make_answering_job(Core& core) { return std::make_unique<AnsweringJob>(core); }

void Waiting::answer_while(const std::function<void()>& meet) {
  if (!core_.links.rails || served_) return meet();
  std::atomic<bool> met = false;
  std::thread polling = start_thread("a thread that answers peers", [&] {
    while (!met) {
      {
        const CoreLock lock(core_.mutex);
        if (waiters_ == 0) core_.links.poll_rails();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  const auto end = [&] {
    met = true;
    polling.join();
  };
  try {
    meet();
  } catch (...) {
    end();
    throw;
  }
  end();
}

// The last data that this rank sent, or its last receipts, may have been lost with a failed rail,
// and only this rank can resend them. A receiver sends its receipts at the latest when it enters
// this function itself. So each rank polls until all ranks are in this function.
void Waiting::settle_rails(const Job& of, const std::function<void()>& meet) {
  if (!core_.links.rails) return meet();
  const auto until = Clock::now() + core_.options.timeout / 2;
  const auto settled = [&] {
    const CoreLock lock(core_.mutex);
    return core_.links.rails->settled();
  };
  {
    const CoreLock lock(core_.mutex);
    core_.links.rails->settle();
  }
  answer_while([&] {
    while (!settled() && !of.failed() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    meet();
  });
}

}  // namespace weft
