// A core of one rank, for tests of the objects that it owns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "coll/runtime/core.h"
#include "support/jobs/communicator_inside.h"
#include "support/jobs/job_around.h"
#include "support/jobs/ranks.h"

namespace weft::testing {

// A World of one rank. `around` wraps the job, so that a test can override its functions; null: no
// wrapper.
struct CoreOfOne {
  explicit CoreOfOne(const std::function<std::unique_ptr<Job>(std::unique_ptr<Job>)>& around = {}) {
    WorldOptions options;
    options.timeout = std::chrono::seconds(20);
    auto job = std::move(local_jobs(1)[0]);
    if (around) job = around(std::move(job));
    world = std::make_unique<World>(std::move(job), places({1})[0], options);
    comm = world->world();
  }
  GroupState& group() { return CommunicatorInside::of(comm); }
  Core& core() { return *group().core; }

  std::unique_ptr<World> world;
  Communicator comm;
};

// A task without transfers; the test sets the result of progress().
struct ToldTask : Task {
  explicit ToldTask(GroupState& g) {
    group = &g;
    prepared.renew();
  }
  void complete(const Completion&) override {}
  Step progress() override {
    ++turns;
    return next;
  }
  void done() override { ++dones; }
  void cancel() override { ++cancels; }
  void release() override {}
  bool survey(Recorder::Stalled&) const override { return false; }
  Status failure() const override { return {Code::kInvalidArgument, "told to fail"}; }

  Step next = Step::kGoOn;
  int turns = 0, dones = 0, cancels = 0;
};

}  // namespace weft::testing
