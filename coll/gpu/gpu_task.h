// GpuTask: the task that callers wait for while a lane, or the thread of the messages, works.
#pragma once

#include "coll/runtime/core.h"

namespace weft {

class GpuTask final : public Task {
 public:
  GpuTask(GroupState& g, const CallDescriptor& of) : what_(of) { group = &g; }
  CallDescriptor what() const override { return what_; }
  // It has no transfers, and no turns.
  void complete(const Completion&) override {}
  Step progress() override { return Step::kGoOn; }
  void done() override {}
  bool survey(Recorder::Stalled&) const override { return false; }
  bool polled() const override { return false; }

 private:
  const CallDescriptor what_;
};

}  // namespace weft
