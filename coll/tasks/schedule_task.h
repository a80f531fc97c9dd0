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
  // Starts the collective with this number on a free task of the core, if possible one that is set
  // up for its plan. blocks: the memory that the spans in `call` point to.
  static ScheduleTask* begin(GroupState& group, const PreparedRef& prepared, std::uint64_t number,
                             const Call& call, std::vector<std::size_t>&& blocks)
      WEFT_REQUIRES(core_held);

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
  // Moves the best task for the plan to the end of pool.free; adds one if there is none.
  static void find_free(SchedulePool& pool, const Plan& plan, std::size_t bytes)
      WEFT_REQUIRES(core_held);
  bool may_start() const;
  void launch() WEFT_REQUIRES(core_held);

  Run run_;
  Compute* compute_ = nullptr;       // group->compute when the run started
  std::uint64_t start_ = 0;          // its number among the group's tasks with schedules
  std::vector<std::size_t> blocks_;  // the memory that the spans in `call` point to
};

}  // namespace weft
