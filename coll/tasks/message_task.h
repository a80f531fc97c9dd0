// MessageTask: one point-to-point message, as one transfer or one per slice.
//
// Between two ranks of a host that both have a GPU, a sender may offer a message instead of sending
// its bytes: the offer contains their location, and the receiver copies them from there, or
// declines and gets the bytes. A receive without take_offers() declines.
#pragma once

#include <array>
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
  // The content of an offer; the transport and the task do not interpret it.
  using Offer = std::array<std::byte, 128>;
  enum class Answer : std::uint8_t { kNone, kTaken, kDeclined };

  // Fixes the message's position in the order of the pair's messages. peer: a rank of the group.
  MessageTask(GroupState& group, bool sends, Rank peer, std::size_t count, DType type)
      WEFT_REQUIRES(core_held);
  // Starts a message with all its slices. own_rail: see Transfer::own_rail.
  static MessageTask* begin(GroupState& group, bool sends, Rank peer, void* data, std::size_t count,
                            DType type, bool own_rail = false) WEFT_REQUIRES(core_held);

  // Makes the slices below `end` of the message at `data` ready; may be called repeatedly.
  void let_go(void* data, std::uint32_t end) WEFT_REQUIRES(core_held);
  // For a send, before its first let_go(): offers the message. Does not wait.
  void offer(const Offer& offer) WEFT_REQUIRES(core_held);
  // The receiver's answer to the offer. For a send: after kTaken the task is over; after kDeclined,
  // call let_go().
  Answer answer() const { return answer_; }
  // For a receive, before its first let_go(): the caller will answer the offer with answer().
  void take_offers() { takes_offers_ = true; }
  // The unanswered offer; nullptr: none.
  const Offer* offered() const {
    return !sends() && offered_ && answer_ == Answer::kNone ? &offer_ : nullptr;
  }
  void answer(Answer answer) WEFT_REQUIRES(core_held);

  bool under_way() const { return ready_ > 0 || (sends() && offered_); }
  std::uint32_t slices_ready() const { return ready_; }
  std::size_t slice_bytes() const { return slice_bytes_; }
  // Appends the number of each completed slice to `over`.
  void tell_slices(std::vector<std::uint32_t>& over) { slices_over_ = &over; }

  void complete(const Completion& transfer) override WEFT_REQUIRES(core_held);
  Step progress() override WEFT_REQUIRES(core_held);
  void done() override WEFT_REQUIRES(core_held);
  Rank waiting_for() const override { return peer(); }
  bool survey(Recorder::Stalled& how_far) const override;
  Status failure() const override WEFT_REQUIRES(core_held);
  Status mismatch() const override WEFT_REQUIRES(core_held);
  std::span<const Run::Traffic> traffic() override;

 private:
  void start() WEFT_REQUIRES(core_held);
  void post() WEFT_REQUIRES(core_held);
  void post_aside(bool sends, bool answer) WEFT_REQUIRES(core_held);

  bool sends() const { return prepared->of.sends; }
  Rank peer() const { return prepared->of.root; }  // world rank
  std::size_t bytes() const { return prepared->total_bytes; }

  Core& core_;
  std::size_t slice_bytes_;
  std::uint32_t slices_, ready_ = 0, posted_ = 0, left_;  // slices below ready_ may be posted
  std::byte* data_ = nullptr;
  std::vector<std::uint32_t>* slices_over_ = nullptr;
  bool own_rail_ = false;
  // offered_: a send has made its offer, or a receive has got one.
  bool may_be_offered_, takes_offers_ = false, offered_ = false;
  Answer answer_ = Answer::kNone;
  Offer offer_ = {};
  Code failed_ = Code::kOk;
  Run::Traffic traffic_;
};

}  // namespace weft
