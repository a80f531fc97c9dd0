// A job that forwards to another one, for tests that override one of its functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/job/bootstrap.h"

namespace weft::testing {

class JobAround : public Job {
 public:
  explicit JobAround(std::unique_ptr<Job> job) : job_(std::move(job)) {}
  Rank rank() const override { return job_->rank(); }
  int size() const override { return job_->size(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    return job_->all_gather(mine);
  }
  std::string key(std::string_view label) const override { return job_->key(label); }
  std::unique_ptr<Mailbox> open_mailbox() override { return job_->open_mailbox(); }
  bool failed() const noexcept override { return job_->failed(); }
  Status failure() const override { return job_->failure(); }
  std::size_t heard() const noexcept override { return job_->heard(); }
  std::vector<JobFailure> failures(std::size_t first) const override {
    return job_->failures(first);
  }
  void report(const Status& failure, const Scope& scope) noexcept override {
    job_->report(failure, scope);
  }
  std::vector<Rank> silent(std::chrono::milliseconds age) const override {
    return job_->silent(age);
  }
  std::vector<std::string> inquire(std::chrono::milliseconds limit) override {
    return job_->inquire(limit);
  }
  void set_witness(Witness* witness) override { job_->set_witness(witness); }
  void leave() noexcept override { job_->leave(); }
  void abort(const char* reason) noexcept override { job_->abort(reason); }
  std::unique_ptr<Job> shrink() override { return job_->shrink(); }

 private:
  std::unique_ptr<Job> job_;
};

}  // namespace weft::testing
