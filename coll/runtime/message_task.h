// MessageTask: one point-to-point message, as one transfer or as a transfer per slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/runtime/core.h"

namespace weft {

inline std::uint32_t slices_of(std::size_t bytes, std::size_t slice) {
  return bytes ? static_cast<std::uint32_t>((bytes - 1) / slice + 1) : 1;
}

class MessageTask final : public Task {
 public:
  // Fixes the message's place among the messages of the pair. peer: a rank of the group. The
  // caller of both functions holds the core's mutex.
  MessageTask(GroupState& group, bool sends, Rank peer, std::size_t count, DType type);
  // Starts such a message with all its slices.
  static MessageTask* begin(GroupState& group, bool sends, Rank peer, void* data, std::size_t count,
                            DType type);

  // Lets the slices below `end` of the message at `data` go; may be called repeatedly.
  void let_go(void* data, std::uint32_t end);
  bool under_way() const { return ready_ > 0; }
  std::uint32_t slices_ready() const { return ready_; }
  std::size_t slice_bytes() const { return slice_bytes_; }
  // Makes `over` get the number of each slice that ends.
  void tell_slices(std::vector<std::uint32_t>& over) { slices_over_ = &over; }

  void start() override;
  void complete(const Completion& transfer) override;
  Step progress() override;
  Rank waiting_for() const override { return peer_; }
  bool survey(Recorder::Stalled& how_far) const override;
  Status failure() const override;
  Status mismatch() const override;
  std::span<const Run::Traffic> traffic() override;

 private:
  void post();

  Core& core_;
  const bool sends_;
  const Rank peer_;  // world rank
  const std::size_t bytes_;
  std::size_t slice_bytes_;
  std::uint32_t slices_, ready_ = 0, posted_ = 0, left_;  // slices below ready_ may be posted
  std::byte* data_ = nullptr;
  std::vector<std::uint32_t>* slices_over_ = nullptr;
  Code failed_ = Code::kOk;
  Run::Traffic traffic_;
};

}  // namespace weft
