// Sorts the algorithms by predicted and measured times. Does not predict or measure.
#include "coll/select/choice.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

// Noise threshold: a time is clearly shorter than another only below this fraction of it.
constexpr double kClear = 0.97;

}  // namespace

std::vector<Candidate> candidates(Collective collective, const Shape& shape, std::size_t bytes,
                                  const CostModel& model, const Profile& profile) {
  std::vector<Candidate> all;
  const std::vector<Rated> rated = rate(collective, shape, bytes, model);
  for (const Rated& r : rated)
    all.push_back(
        {r.algorithm, r.prediction, profile.time_us(collective, shape, bytes, r.algorithm->name)});
  if (all.empty()) return all;
  const Algorithm* picked = pick(rated, shape, bytes, model).algorithm;
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

}  // namespace weft
