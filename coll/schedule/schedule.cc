// Adds steps to schedules, cuts ranges of chunks, prints and hashes schedules. This file is
// independent of collectives and algorithms.
#include "coll/schedule/schedule.h"

#include <fmt/format.h>

#include <bit>
#include <iterator>

namespace weft {
namespace {

int modulo(int i, int n) { return ((i % n) + n) % n; }

// FNV-1a over 64-bit words with a final mix (splitmix64), so that similar schedules hash far apart.
class Hasher {
 public:
  void add(std::uint64_t word) { state_ = (state_ ^ word) * 0x100000001b3ULL; }
  std::uint64_t value() const {
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace

const char* name(Op op) {
  switch (op) {
    case Op::kSend:
      return "send";
    case Op::kRecv:
      return "recv";
    case Op::kRecvReduce:
      return "recv_reduce";
  }
  return "?";
}

Chunks Chunks::part(int i, int n) const {
  i = modulo(i, n);
  const int size = count / n, larger = count % n;
  return {first + i * size + (i < larger ? i : larger), size + (i < larger ? 1 : 0)};
}

void Schedule::add(Op op, Rank peer, Chunks at, int channel, bool joined) {
  if (at.count <= 0 || peer == rank) return;
  if (joined)
    joined = !steps.empty() && steps.back().op == op && steps.back().peer == peer &&
             steps.back().channel == channel;
  steps.push_back({op, peer, channel, at, joined});
}

Rank Group::at(int i) const { return ranks[modulo(i, size())]; }

std::size_t reduction_end(const Schedule& schedule, std::size_t i) {
  const auto& steps = schedule.steps;
  const Step& first = steps[i];
  std::vector<bool> heard(static_cast<std::size_t>(schedule.nranks), false);
  for (; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (step.op != first.op || step.channel != first.channel || step.at != first.at) break;
    const auto peer = static_cast<std::size_t>(step.peer);
    if (heard[peer]) break;
    heard[peer] = true;
  }
  return i;
}

std::string to_string(const Schedule& schedule) {
  std::string text =
      fmt::format("rank {} of {}, {} chunks\n", schedule.rank, schedule.nranks, schedule.nchunks);
  auto out = std::back_inserter(text);
  if (!schedule.block.empty()) fmt::format_to(out, "  block {}\n", fmt::join(schedule.block, " "));
  if (!schedule.weight.empty())
    fmt::format_to(out, "  weight {}\n", fmt::join(schedule.weight, " "));
  if (!schedule.place.empty()) fmt::format_to(out, "  place {}\n", fmt::join(schedule.place, " "));
  int i = 0;
  for (const Step& step : schedule.steps)
    fmt::format_to(out, "{:3} {}  {} {}  chunks [{},{})  channel {}{}\n", i++, name(step.op),
                   step.op == Op::kSend ? "->" : "<-", step.peer, step.at.first, step.at.end(),
                   step.channel, step.joined ? "  joined" : "");
  return text;
}

std::uint64_t hash(const Schedule& schedule) {
  Hasher h;
  for (int v : {schedule.rank, schedule.nranks, schedule.nchunks}) h.add(v);
  h.add(schedule.steps.size());
  for (const Step& step : schedule.steps)
    for (int v : {static_cast<int>(step.op), static_cast<int>(step.peer), step.channel,
                  step.at.first, step.at.count, static_cast<int>(step.joined)})
      h.add(v);
  h.add(schedule.packs);
  h.add(schedule.place.size());
  for (int p : schedule.place) h.add(p);
  h.add(schedule.block.size());
  for (int b : schedule.block) h.add(b);
  h.add(schedule.weight.size());
  for (double w : schedule.weight) h.add(std::bit_cast<std::uint64_t>(w));
  return h.value();
}

}  // namespace weft
