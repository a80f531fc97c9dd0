// Reads GOAL, the schedules of LogGOPSim and ATLAHS: one text with the sends, receives and
// computations (in nanoseconds) of all ranks of a job. This file does not depend on other formats.
//
//   num_ranks 2
//   rank 0 {
//   l1: send 8b to 1 tag 0
//   l2: calc 100
//   l2 requires l1
//   }
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "perf/replay/formats/read.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

// Splits a line into words, without comments; "{", "}" and ":" are words.
std::vector<std::string> words_of(std::string_view line, bool& in_comment) {
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::string_view two = line.substr(i, 2);
    if (in_comment) {
      if (two == "*/") in_comment = false, ++i;
    } else if (two == "//") {
      break;
    } else if (two == "/*") {
      in_comment = true;
      ++i;
    } else if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
      end();
    } else if (line[i] == '{' || line[i] == '}' || line[i] == ':') {
      end();
      words.emplace_back(1, line[i]);
    } else {
      word += line[i];
    }
  }
  end();
  return words;
}

class GoalReader {
 public:
  explicit GoalReader(const TraceFile& file) : file_(file.name) {}

  std::vector<RankTrace> read(const std::string& text) {
    most_ranks_ = text.size() / std::string_view("rank 0 {}").size();
    std::istringstream in(text);
    std::string line;
    bool in_comment = false;
    while (std::getline(in, line)) {
      ++line_;
      words_ = words_of(line, in_comment);
      at_ = 0;
      if (!words_.empty()) statement();
    }
    if (now_ != nullptr)
      throw Error(fmt::format("{}: cut off: rank {} has no closing bracket", file_, now_->rank));
    if (ranks_.empty()) fail("there is no \"num_ranks N\"");
    return std::move(ranks_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: line {}: {}", file_, line_, what));
  }
  bool take(std::string_view word) {
    if (at_ >= words_.size() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  const std::string& need(const char* what) {
    if (at_ >= words_.size()) fail(fmt::format("{} is missing", what));
    return words_[at_++];
  }
  std::uint64_t number(const char* what, std::string word) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
      fail(fmt::format("{} '{}' is not a number from 0 up", what, word));
    return value;
  }
  std::uint64_t number(const char* what) { return number(what, need(what)); }

  void statement() {
    if (take("num_ranks")) {
      const std::uint64_t ranks = number("the number of ranks");
      if (ranks < 1 || ranks > kMostRanks)
        fail(fmt::format("{} ranks: give 1 to {}", ranks, kMostRanks));
      if (ranks > most_ranks_)
        fail(fmt::format("{} ranks: the file is too short for them; it is cut off", ranks));
      ranks_.resize(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        ranks_[r].file = file_;
        ranks_[r].rank = static_cast<int>(r);
        ranks_[r].job_ranks = static_cast<int>(ranks);
        ranks_[r].sends_are_eager = true;
      }
    } else if (take("rank")) {
      const std::uint64_t rank = number("the rank");
      if (rank >= ranks_.size())
        fail(fmt::format("there is no rank {}; num_ranks is {}", rank, ranks_.size()));
      now_ = &ranks_[rank];
      labels_.clear();
      if (!take("{")) fail("\"rank N\" needs a \"{\"");
    } else if (now_ == nullptr) {
      fail(fmt::format("'{}' stands outside of a rank", words_[0]));
    } else if (take("}")) {
      end_of_rank();
    } else {
      operation();
    }
    if (at_ < words_.size()) fail(fmt::format("'{}' is one word too many", words_[at_]));
  }

  void operation() {
    std::string label;
    if (words_.size() > 2 && (words_[1] == "requires" || words_[1] == "irequires"))
      return require();
    if (words_.size() > 1 && words_[1] == ":") {
      label = words_[0];
      at_ = 2;
    }
    TraceNode& node = now_->nodes.emplace_back();
    node.id = now_->nodes.size();
    node.name = label.empty() ? fmt::format("line {}", line_) : label;
    node.type = DType::kUInt8;
    const std::string what = need("send, recv or calc");
    if (what == "calc")
      node.compute_us = static_cast<double>(number("the time in ns")) / 1e3;
    else if (what == "send" || what == "recv")
      message(node, what == "send");
    else
      fail(fmt::format("'{}' is not send, recv, calc, requires or irequires", what));
    std::uint64_t cpu = 0;
    while (at_ < words_.size()) {
      if (take("cpu"))
        cpu = number("the cpu");
      else if (take("nic"))
        (void)number("the nic");
      else
        break;
    }
    if (cpu > 0) ++now_->left_out["operation on another cpu than 0 (weft computes one at a time)"];
    if (!label.empty() && !labels_.emplace(label, node.id).second)
      fail(fmt::format("a second operation '{}' of this rank", label));
  }

  void message(TraceNode& node, bool sends) {
    std::string size = need("the size");
    if (size.ends_with('b'))
      size.pop_back();
    else if (!take("b"))
      fail(fmt::format("the size '{}' does not end with b", size));
    node.bytes = number("the size", size);
    if (!take(sends ? "to" : "from")) fail(sends ? "a send needs \"to\"" : "a recv needs \"from\"");
    const std::string peer = need("the peer");
    if (peer == "-1") fail("a recv from any rank (-1): its order is not known before it runs");
    const std::uint64_t rank = number("the peer", peer);
    if (rank >= ranks_.size())
      fail(fmt::format("there is no rank {}; num_ranks is {}", rank, ranks_.size()));
    node.peer = static_cast<Rank>(rank);
    if (take("tag")) {
      const std::string tag = need("the tag");
      if (tag == "-1") fail("a recv of any tag (-1): its order is not known before it runs");
      node.tag = static_cast<std::int64_t>(number("the tag", tag));
      if (node.tag < 0 || node.tag > UINT32_MAX)
        fail(fmt::format("the tag {} has over 32 bits", tag));
    }
    if (node.bytes == 0) {  // it still orders the ranks
      ++now_->left_out["bytes of a message of 0 bytes: it is played as one of 1 byte"];
      node.bytes = 1;
    }
    node.kind = sends ? NodeKind::kSend : NodeKind::kRecv;
  }

  void require() {
    TraceNode& later = labelled(words_[0]);
    TraceNode& before = labelled(words_[2]);
    if (words_[1] == "irequires")
      starts_.emplace_back(&later - now_->nodes.data(), &before - now_->nodes.data());
    else
      later.after_ids.push_back(before.id);
    at_ = 3;
  }

  // "a irequires b": a waits until b has begun, that is, until the dependencies of b have ended.
  void end_of_rank() {
    for (const auto& [later, before] : starts_) {
      const std::vector<std::uint64_t> ids =
          now_->nodes[static_cast<std::size_t>(before)].after_ids;
      std::vector<std::uint64_t>& mine = now_->nodes[static_cast<std::size_t>(later)].after_ids;
      mine.insert(mine.end(), ids.begin(), ids.end());
    }
    starts_.clear();
    now_ = nullptr;
  }

  TraceNode& labelled(const std::string& label) {
    const auto it = labels_.find(label);
    if (it == labels_.end())
      fail(fmt::format("there is no operation '{}' before this line", label));
    return now_->nodes[it->second - 1];
  }

  const std::string file_;
  std::vector<RankTrace> ranks_;
  RankTrace* now_ = nullptr;
  // Ids of this rank's nodes, by label.
  std::map<std::string, std::uint64_t> labels_;
  std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>> starts_;  // by node: later, before
  std::size_t line_ = 0, at_ = 0, most_ranks_ = 0;
  std::vector<std::string> words_;
};

}  // namespace

std::vector<RankTrace> read_goal(const TraceFile& file) {
  return GoalReader(file).read(file.bytes);
}

}  // namespace weft::replay
