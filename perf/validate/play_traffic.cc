// The calls of a job's traffic. Does not know how groups are made, or what the times should be.
#include "perf/validate/play_traffic.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "coll/runtime/internals.h"
#include "transport/launch/failures.h"

namespace weft::fabric {
namespace {

constexpr std::uint64_t kMostBytes = 64u << 20;
constexpr double kMostUs = 1e6;           // of a call, by prediction: far from any deadline
constexpr std::uint64_t kLeastCalls = 3;  // for a median

constexpr TrafficAxis kAxes[] = {TrafficAxis::kTensor, TrafficAxis::kPipeline, TrafficAxis::kData};

// The same numbers on every rank: those of rank 0.
void share(Communicator& all, std::vector<double>& numbers) {
  require(all.broadcast(numbers.data(), numbers.data(), numbers.size(), DType::kFloat64, 0));
}

// The largest of all ranks' numbers, on every rank.
void share_largest(Communicator& all, std::vector<double>& numbers) {
  require(
      all.all_reduce(numbers.data(), numbers.data(), numbers.size(), DType::kFloat64, RedOp::kMax));
}

// This rank's end of a group's calls.
class GroupCalls {
 public:
  GroupCalls(World& world, const std::vector<std::vector<Rank>>& groups) {
    int color = Communicator::kNoColor, key = 0;
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (std::size_t i = 0; i < groups[g].size(); ++i)
        if (groups[g][i] == world.rank()) {
          color = static_cast<int>(g);
          key = static_cast<int>(i);
        }
    comm_ = world.world().split(color, key);
  }

  // Calls once with a message of `bytes`, a multiple of the group's floats, when all ranks of the
  // group are there: the time of a call is not that of a late rank. Returns seconds; 0: this rank
  // is in no group.
  double call(const TrafficPart& part, std::uint64_t bytes, std::vector<float>& data) {
    if (!comm_) return 0;
    const std::size_t count = bytes / sizeof(float), me = static_cast<std::size_t>(comm_.rank());
    const std::size_t block = count / static_cast<std::size_t>(comm_.size());
    require(comm_.barrier());
    const auto start = std::chrono::steady_clock::now();
    switch (part.collective) {
      case Collective::kAllGather:
        require(comm_.all_gather(&data[me * block], data.data(), block, DType::kFloat32));
        break;
      case Collective::kReduceScatter:
        require(comm_.reduce_scatter(data.data(), &data[me * block], block, DType::kFloat32,
                                     RedOp::kSum));
        break;
      case Collective::kSendRecv:
        require(pass_on(part.back ? -1 : 1, count, data));
        break;
      default:
        require(comm_.all_reduce(data.data(), data.data(), count, DType::kFloat32, RedOp::kSum));
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  // Every stage sends to the next one (step 1) or the one before (-1) at the same time.
  Status pass_on(int step, std::size_t count, std::vector<float>& data) {
    const Rank to = comm_.rank() + step, from = comm_.rank() - step;
    std::vector<Message> messages;
    if (to >= 0 && to < comm_.size())
      messages.push_back(Message::to(to, data.data(), count, DType::kFloat32));
    if (from >= 0 && from < comm_.size())
      messages.push_back(Message::from(from, &data[count], count, DType::kFloat32));
    return comm_.exchange(messages);
  }

  Communicator comm_;
};

double median_of_calls(std::vector<double> seconds) {
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

// Bytes of a call as it is played.
std::uint64_t playable(std::uint64_t bytes, double predicted_us, int group) {
  double most = static_cast<double>(std::min(bytes, kMostBytes));
  if (predicted_us > 0) most = std::min(most, static_cast<double>(bytes) * kMostUs / predicted_us);
  const std::uint64_t unit = sizeof(float) * static_cast<std::uint64_t>(group);
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(most) / unit, 1) * unit;
}

}  // namespace

std::vector<Rhythm> shorten(const std::vector<TrafficBeat>& beats, double step_s, double budget_s) {
  const double share = step_s > 0 ? std::min(1.0, budget_s / step_s) : 1;
  const auto part_of = [](std::uint64_t whole, double part) {
    const auto n = static_cast<std::uint64_t>(std::llround(static_cast<double>(whole) * part));
    return std::clamp<std::uint64_t>(n, std::min(whole, kLeastCalls), whole);
  };
  std::vector<Rhythm> all;
  for (const TrafficBeat& beat : beats) {
    Rhythm& rhythm = all.emplace_back();
    rhythm.times = part_of(beat.times, share);
    const double rest =
        std::min(1.0, share * static_cast<double>(beat.times) / static_cast<double>(rhythm.times));
    for (const TrafficPart& part : beat.parts) {
      // What a pass calls once is called in each of at least three passes.
      const std::uint64_t least = rhythm.times >= kLeastCalls ? 1 : kLeastCalls;
      rhythm.calls.push_back(std::clamp<std::uint64_t>(
          static_cast<std::uint64_t>(std::llround(static_cast<double>(part.calls) * rest)),
          std::min(part.calls, least), part.calls));
    }
  }
  return all;
}

void play(World& world, const JobTraffic& traffic, const FoldedJob& job,
          const std::vector<FleetHost>& fleet, const Samples& samples, double budget_s,
          JobPlayed& played) {
  Communicator all = world.world();
  const Players players = players_of(world.topology());
  std::vector<std::vector<std::vector<Rank>>> groups;
  std::vector<GroupCalls> calls;
  for (const TrafficAxis axis : kAxes) {
    groups.push_back(groups_of(job, axis));
    calls.emplace_back(world, groups.back());
  }
  const auto groups_by = [&](TrafficAxis axis) -> auto& {
    return groups[static_cast<std::size_t>(axis)];
  };

  const std::size_t kinds = played.kinds.size();
  const CostModel costs = Internals::costs(world);
  const SlowestPort slowest = slowest_port(samples);
  if (slowest.gbps > 0) played.limiting_link = in_short(slowest, fleet);
  std::vector<double> told(2 * kinds, 0);  // predictions and sizes, from rank 0
  for (const TrafficBeat& beat : traffic.beats)
    for (const TrafficPart& part : beat.parts) {
      const std::size_t k = kind_of(played, part);
      if (world.rank() != 0 || told[kinds + k] > 0 || groups_by(part.axis).empty()) continue;
      const auto predict_bytes = [&](std::uint64_t bytes) {
        return predicted_us(part.collective, bytes, groups_by(part.axis), players, costs,
                            slowest.gbps);
      };
      const std::uint64_t bytes =
          playable(part.bytes, predict_bytes(part.bytes), played.kinds[k].played_group);
      told[k] = predict_bytes(bytes);
      told[kinds + k] = static_cast<double>(bytes);
    }
  told.push_back(budget_s);
  share(all, told);
  std::uint64_t longest = 0;
  for (std::size_t k = 0; k < kinds; ++k) {
    played.kinds[k].predicted_us = told[k];
    played.kinds[k].played_bytes = static_cast<std::uint64_t>(told[kinds + k]);
    longest = std::max(longest, played.kinds[k].played_bytes);
  }
  std::vector<float> data(2 * longest / sizeof(float), 0.0F);  // what is sent, what is received

  std::vector<std::vector<double>> seconds(kinds);
  const auto play_beats = [&](const std::vector<Rhythm>& rhythms) {
    for (std::size_t b = 0; b < rhythms.size(); ++b)
      for (std::uint64_t pass = 0; pass < rhythms[b].times; ++pass)
        for (std::size_t p = 0; p < traffic.beats[b].parts.size(); ++p) {
          const TrafficPart& part = traffic.beats[b].parts[p];
          const std::size_t k = kind_of(played, part);
          if (groups_by(part.axis).empty()) continue;
          for (std::uint64_t i = 0; i < rhythms[b].calls[p]; ++i)
            seconds[k].push_back(calls[static_cast<std::size_t>(part.axis)].call(
                part, played.kinds[k].played_bytes, data));
        }
  };
  const auto medians = [&] {
    std::vector<double> of_kinds;
    for (const std::vector<double>& one : seconds) of_kinds.push_back(median_of_calls(one));
    share_largest(all, of_kinds);
    return of_kinds;
  };
  std::vector<Rhythm> once;
  for (const TrafficBeat& beat : traffic.beats)
    once.push_back({1, std::vector<std::uint64_t>(beat.parts.size(), 1)});
  play_beats(once);  // sets up connections
  for (std::vector<double>& one : seconds) one.clear();
  play_beats(once);
  double step_s = 0;
  const std::vector<double> first = medians();
  for (std::size_t k = 0; k < kinds; ++k)
    step_s += first[k] * static_cast<double>(played.kinds[k].calls);
  for (std::vector<double>& one : seconds) one.clear();
  const std::vector<Rhythm> rhythms = shorten(traffic.beats, step_s, told.back());
  play_beats(rhythms);
  const std::vector<double> measured = medians();
  for (std::size_t k = 0; k < kinds; ++k) played.kinds[k].measured_us = 1e6 * measured[k];
  for (std::size_t b = 0; b < rhythms.size(); ++b)
    for (std::size_t p = 0; p < rhythms[b].calls.size(); ++p) {
      const TrafficPart& part = traffic.beats[b].parts[p];
      if (!groups_by(part.axis).empty())
        played.kinds[kind_of(played, part)].played_calls += rhythms[b].times * rhythms[b].calls[p];
    }
}

}  // namespace weft::fabric
