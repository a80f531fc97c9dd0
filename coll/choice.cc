#include "coll/choice.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

// Scatters the rivals' turns: sizes of a program come in rhythms, too.
bool rivals_turn(std::uint64_t call) {
  std::uint64_t x = call * 0x9e3779b97f4a7c15u;
  x ^= x >> 32;
  return (x * 0xbf58476d1ce4e5b9u >> 40) % Trial::kEvery == 0;
}

// Measured times differ by this much by chance.
constexpr double kClear = 0.97;

double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

}  // namespace

std::vector<Candidate> candidates(Collective collective, const Shape& shape, std::size_t bytes,
                                  const CostModel& model, const Profile& profile) {
  std::vector<Candidate> all;
  const std::vector<Rated> rated = rate(collective, shape, bytes, model);
  for (const Rated& r : rated)
    all.push_back(
        {r.algorithm, r.prediction, profile.time_us(collective, shape, bytes, r.algorithm->name)});
  if (all.empty()) return all;
  const Algorithm* picked = pick(rated, shape, model).algorithm;
  auto first = std::ranges::find(all, picked, &Candidate::algorithm);
  if (first->measured_us > 0) {
    const auto best = std::ranges::min_element(all, {}, [](const Candidate& c) {
      return c.measured_us > 0 ? c.measured_us : std::numeric_limits<double>::infinity();
    });
    if (best->measured_us < kClear * first->measured_us) first = best;
  }
  std::iter_swap(all.begin(), first);
  std::stable_sort(all.begin() + 1, all.end(), [](const Candidate& a, const Candidate& b) {
    const auto us = [](const Candidate& c) {
      return c.measured_us > 0 ? c.measured_us : c.prediction.time_us;
    };
    return us(a) < us(b);
  });
  return all;
}

Trial::Trial(const std::vector<Candidate>& candidates)
    : begins_(candidates.front().measured_us > 0 ? kBeforeMeasured : kBefore) {
  const double most_us = kRival * candidates.front().prediction.time_us;
  for (const Candidate& c : candidates)
    if (tried_.empty() || (tried_.size() <= kRivals && c.prediction.time_us <= most_us))
      tried_.push_back({c.algorithm, {}});
}

const Algorithm* Trial::next() {
  ++calls_;
  if (tried_.size() < 2 || calls_ < begins_) return current();
  if (!trying_ && !due_) {
    trying_ = true;
    for (Tried& t : tried_) t.us.clear(), t.calls = 0;
  }
  if (due_) return current();  // until it is decided
  std::size_t turn = current_;
  if (rivals_turn(calls_)) {
    // The one with the fewest calls, in order.
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = 0; i < tried_.size(); ++i)
      if (i != current_ && tried_[i].calls < fewest) fewest = tried_[turn = i].calls;
  }
  ++tried_[turn].calls;
  due_ = std::ranges::all_of(tried_, [](const Tried& t) { return t.calls >= kSamples; });
  return tried_[turn].algorithm;
}

void Trial::took(const Algorithm* algorithm, double us) {
  const auto it = std::ranges::find(tried_, algorithm, &Tried::algorithm);
  if (it != tried_.end()) it->us.push_back(us);
}

std::vector<double> Trial::testimony() const {
  std::vector<double> says;
  for (const Tried& t : tried_)
    says.push_back(t.us.empty() ? std::numeric_limits<double>::max() : median(t.us));
  says.push_back(against_ ? 1 : 0);
  return says;
}

bool Trial::decide(std::span<const double> agreed) {
  trying_ = due_ = against_ = false;
  begins_ = calls_ * kAgain;
  if (agreed.size() != tried_.size() + 1 || agreed.back() != 0) return false;
  for (std::size_t i = 0; i < tried_.size(); ++i) tried_[i].agreed_us = agreed[i];
  const auto best =
      static_cast<std::size_t>(std::min_element(agreed.begin(), agreed.end() - 1) - agreed.begin());
  if (agreed[best] >= kGain * agreed[current_]) return false;
  current_ = best;
  return true;
}

std::vector<Trial::Agreed> Trial::agreed() const {
  std::vector<Agreed> all;
  for (const Tried& t : tried_) all.push_back({t.algorithm, t.agreed_us});
  return all;
}

}  // namespace weft
