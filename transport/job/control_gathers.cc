// Gathers on rank 0: collects each rank's part, distributes the result when the last part has
// arrived, and fails a gather in which ranks are late, leave, or pass different arguments.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "transport/job/control_root.h"

namespace weft {

void RootPlane::receive_part(Rank r, std::string_view bytes, bool more, wire::Gathering what) {
  last_part_ = Clock::now();
  if (!gathering_) {
    gathering_ = true;
    ++current_;
    begun_at_ = last_part_;
    for (Rank other = 0; other < size_; ++other) {
      Peer& p = peer(other);
      p.part.clear();
      p.begun = p.complete = false;
      const bool gone = other == 0 ? left_ : p.left;
      if (gone) return give_up_gather(fmt::format("rank {} has left the job", other));
    }
  }
  Peer& p = peer(r);
  if (r != 0 && p.part.size() + bytes.size() > gather_most_)
    return give_up_gather(fmt::format(
        "{} contributes more than {} bytes to all_gather number {}; raise WEFT_GATHER_BYTES",
        p.member.who, gather_most_, current_));
  p.part += bytes;
  p.what = what;
  p.begun = true;
  p.complete = !more;
  if (p.complete &&
      std::all_of(peers_.begin(), peers_.end(), [](const Peer& other) { return other.complete; })) {
    hand_out();
  }
}

void RootPlane::hand_out() {
  const wire::Gathering what = peers_[0].what;
  const auto other = std::ranges::find_if(peers_, [&](const Peer& p) { return p.what != what; });
  if (other != peers_.end())
    return give_up_gather(fmt::format(
        "rank {} called {}, but rank 0 called {} in collective number {}", other - peers_.begin(),
        wire::words_of(other->what), wire::words_of(what), current_));
  gathering_ = false;
  std::vector<std::string> parts;
  for (Peer& p : peers_) {
    parts.push_back(std::exchange(p.part, {}));
    p.complete = false;
  }
  if (what == wire::Gathering::kForEach) {
    auto of = wire::transpose(parts);
    std::vector<std::string>().swap(parts);
    return hand_out_each(std::move(of), what);
  }
  if (what == wire::Gathering::kFromRoot)
    return hand_out_each(wire::decode_parts(parts[0], size_), what);
  if (what == wire::Gathering::kInGroup) return hand_out_in_groups(parts);
  // In a gather to rank 0, the other ranks get an empty message, which reports completion.
  const auto all = std::make_shared<const std::string>(
      what == wire::Gathering::kToRoot ? std::string() : wire::pack_parts(parts));
  for (Peer& p : peers_) p.member.channel.send_gather(current_, all);
  finish_gather(std::move(parts));
}

// `of` is indexed by rank.
void RootPlane::hand_out_each(std::optional<std::vector<std::string>> of, wire::Gathering what) {
  if (!of)
    return give_up_gather(
        fmt::format("a rank did not pass {} parts in all_gather number {}", size_, current_));
  for (std::size_t r = 1; r < peers_.size(); ++r)
    peers_[r].member.channel.send_gather(current_,
                                         std::make_shared<const std::string>(std::move((*of)[r])));
  if (what == wire::Gathering::kFromRoot) return finish_gather({std::move((*of)[0])});
  finish_gather(wire::decode_parts((*of)[0], size_).value());
}

// Each rank gets one part per rank of the job; parts of other groups are empty.
void RootPlane::hand_out_in_groups(const std::vector<std::string>& named) {
  std::map<std::string, std::vector<std::string>> groups;
  std::vector<std::string> group_of;
  for (std::size_t r = 0; r < named.size(); ++r) {
    auto parts = wire::decode_parts(named[r], 2);
    if (!parts)
      return give_up_gather(
          fmt::format("rank {} passed no group name in all_gather number {}", r, current_));
    auto& of_group = groups[(*parts)[0]];
    of_group.resize(named.size());
    of_group[r] = std::move((*parts)[1]);
    group_of.push_back(std::move((*parts)[0]));
  }
  std::map<std::string, std::shared_ptr<const std::string>> packed;
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    auto& bytes = packed[group_of[r]];
    if (!bytes) bytes = std::make_shared<const std::string>(wire::pack_parts(groups[group_of[r]]));
    peers_[r].member.channel.send_gather(current_, bytes);
  }
  finish_gather(std::move(groups[group_of[0]]));
}

// A rank's part must begin to arrive within the timeout, and then continue to arrive.
void RootPlane::check_gather(Clock::time_point now) {
  const bool begin_late = now >= begun_at_ + timeout_, go_on_late = now >= last_part_ + timeout_;
  std::vector<Rank> late;
  for (Rank r = 0; r < size_; ++r) {
    const Peer& p = peer(r);
    if (p.begun ? !p.complete && go_on_late : begin_late) late.push_back(r);
  }
  if (late.empty()) return;
  give_up_gather(fmt::format("{} did not arrive at all_gather number {} within {} ms",
                             name_ranks(late), current_, timeout_.count()));
}

void RootPlane::give_up_gather(const std::string& why) {
  gathering_ = false;
  fail_gather(why);
  const std::string payload = wire::encode(wire::Numbered{current_, why});
  for (Peer& p : peers_) {
    p.part.clear();
    p.member.channel.send(wire::Type::kGatherFailed, payload);
  }
}

}  // namespace weft
