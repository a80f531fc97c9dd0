// GpuTask: the task that callers wait for while a lane, or the thread of the messages, works.
#pragma once

#include <cstdint>

#include "coll/runtime/core.h"

namespace weft {

class GpuTask final : public Task {
 public:
  GpuTask(GroupState& g, const PreparedRef& of, std::uint64_t numbered) {
    group = &g;
    prepared = of;
    number = numbered;
  }
  // It has no transfers, and no turns.
  void complete(const Completion&) override {}
  Step progress() override { return Step::kGoOn; }
  void done() override {}
  bool survey(Recorder::Stalled&) const override { return false; }
  bool polled() const override { return false; }
};

}  // namespace weft
