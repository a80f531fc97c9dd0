// ScheduleTask: a collective that runs a plan on the engine.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "coll/runtime/core.h"

namespace weft {

class ScheduleTask final : public Task {
 public:
  explicit ScheduleTask(SpareScratch& scratch) { run_.share_scratch(scratch); }
  // Takes a free task of the core, if possible one that is set up for the plan of `prepared`.
  // blocks: the memory that the spans in `call` point to.
  static ScheduleTask* take(GroupState& group, const Prepared& prepared, const Call& call,
                            std::vector<std::size_t>&& blocks) WEFT_REQUIRES(core_held);

  void start() override WEFT_REQUIRES(core_held);
  void complete(const Completion& transfer) override WEFT_REQUIRES(core_held) {
    run_.complete(transfer);
  }
  Step progress() override WEFT_REQUIRES(core_held);
  void done() override WEFT_REQUIRES(core_held);
  void cancel() override WEFT_REQUIRES(core_held);
  void release() override WEFT_REQUIRES(core_held);
  Rank waiting_for() const override;
  bool survey(Recorder::Stalled& how_far) const override;
  Status failure() const override WEFT_REQUIRES(core_held);
  Status mismatch() const override WEFT_REQUIRES(core_held);
  std::span<const Run::Traffic> traffic() override { return run_.traffic(); }

 private:
  bool may_start() const;
  void launch() WEFT_REQUIRES(core_held);

  Run run_;
  const Plan* plan_ = nullptr;
  Slicing slicing_;                  // for a run without a Compute
  Compute* compute_ = nullptr;       // of the group, when the run started
  std::uint64_t start_ = 0;          // the number among the group's tasks with schedules
  std::vector<std::size_t> blocks_;  // the memory that the spans in `call` point to
};

}  // namespace weft
