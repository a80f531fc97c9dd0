// Collects snapshots of all ranks. The control plane's threads respond, so an inquiry works while
// the ranks' programs are blocked.
#include <algorithm>
#include <utility>

#include "transport/job/control_plane.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

// Time without a response after which an inquiry ends, since a stopped rank never responds.
constexpr auto kQuiet = 400ms;
constexpr auto kOutsidersLimit = 1500ms;
constexpr auto kLook = 50ms;

}  // namespace

void Plane::set_witness(Witness* witness) {
  const Lock lock(mutex_);
  witness_ = witness;
}

std::string Plane::snapshot() {
  if (!witness_) return {};
  std::string known = witness_->snapshot();
  if (known.size() > kMaxTestimonyBytes) known.clear();
  return known;
}

void Plane::begin_inquiry() {
  inquiring_ = true;
  ++inquiry_;
  last_snapshot_ = Clock::now();
  snapshots_.assign(static_cast<std::size_t>(size_), {});
  snapshots_[static_cast<std::size_t>(rank_)] = snapshot();
  if (size_ == 1) return end_inquiry();
  ask(inquiry_);
  wake();
}

void Plane::end_inquiry() {
  inquiring_ = false;
  if (std::exchange(for_outsiders_, false) && witness_) witness_->answer(snapshots_);
  changed_.notify_all();
}

std::vector<std::string> Plane::inquire(std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  const auto until = Clock::now() + limit;
  inquiry_until_ = std::max(inquiry_until_, until);
  if (!inquiring_) begin_inquiry();
  const std::uint32_t mine = inquiry_;
  changed_.wait_until(lock, until, [&]() WEFT_REQUIRES(mutex_) {
    return !inquiring_ || inquiry_ != mine || stopping_;
  });
  return snapshots_;
}

void Plane::take_snapshot(Rank from, std::uint32_t number, std::string_view bytes) {
  if (!inquiring_ || number != inquiry_ || from < 0 || from >= size_) return;
  snapshots_[static_cast<std::size_t>(from)] = bytes;
  last_snapshot_ = Clock::now();
  if (std::ranges::none_of(snapshots_, &std::string::empty)) end_inquiry();
}

void Plane::serve_inquiry(Clock::time_point now, bool beat) {
  if (beat && witness_) {
    witness_->beat();
    if (!for_outsiders_ && witness_->asked()) {
      for_outsiders_ = true;
      inquiry_until_ = std::max(inquiry_until_, now + kOutsidersLimit);
      if (!inquiring_) begin_inquiry();
    }
  }
  if (!inquiring_) return;
  const auto answers = size_ - std::ranges::count_if(snapshots_, &std::string::empty);
  // Without a response, this inquiry may still be queued behind other ranks' inquiries.
  if (now >= inquiry_until_ || (answers > 1 && now >= last_snapshot_ + kQuiet)) end_inquiry();
}

Clock::time_point Plane::inquiry_due(Clock::time_point otherwise) const {
  return inquiring_ ? std::min(otherwise, Clock::now() + kLook) : otherwise;
}

}  // namespace weft
