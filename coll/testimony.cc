#include "coll/testimony.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace weft {
namespace {

using nlohmann::json;

struct Stat {
  char state = '?';
  std::uint64_t born = 0;
};

// Fields 3 and 22 of /proc/PID/stat; the name before them may hold anything.
Stat read_stat(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return {'X', 0};
  const auto end = text.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream fields(text.substr(end + 1));
  Stat stat;
  std::string skipped;
  fields >> stat.state;
  for (int i = 4; i < 22; ++i) fields >> skipped;
  fields >> stat.born;
  return stat;
}

json to_json(const OperationReport& o) {
  json j = {{"number", o.number},
            {"comm", o.comm},
            {"leader", o.leader},
            {"members", o.members},
            {"sequence", o.sequence},
            {"collective", static_cast<int>(o.collective)},
            {"uneven", o.uneven},
            {"digest", o.digest},
            {"lane", o.lane},
            {"on_device", o.on_device},
            {"replay", o.replay},
            {"message", o.message},
            {"sends", o.sends},
            {"type", static_cast<int>(o.type)},
            {"op", static_cast<int>(o.op)},
            {"root", o.root},
            {"count", o.count},
            {"state", static_cast<int>(o.state)},
            {"started_s", o.started_s},
            {"ended_s", o.ended_s},
            {"title", title(o)},
            {"arguments", arguments(o)}};
  if (!o.surveyed) return j;
  j["part"] = o.part;
  j["rounds"] = o.rounds;
  j["rounds_done"] = o.rounds_done;
  j["peers"] = json::array();
  for (const PeerProgress& p : o.peers)
    j["peers"].push_back({{"peer", p.peer},
                          {"link", p.link},
                          {"sends_posted", p.sends_posted},
                          {"sends_done", p.sends_done},
                          {"recvs_posted", p.recvs_posted},
                          {"recvs_done", p.recvs_done},
                          {"sends_on", p.sends_on},
                          {"recvs_on", p.recvs_on}});
  return j;
}

OperationReport operation_from(const json& j) {
  OperationReport o;
  o.number = j.at("number");
  o.comm = j.at("comm");
  o.leader = j.at("leader");
  o.members = j.at("members");
  o.sequence = j.at("sequence");
  o.collective = static_cast<Collective>(j.at("collective").get<std::uint8_t>());
  o.uneven = j.at("uneven");
  o.digest = j.at("digest");
  o.lane = j.at("lane");
  o.on_device = j.at("on_device");
  o.replay = j.at("replay");
  o.message = j.at("message");
  o.sends = j.at("sends");
  o.type = static_cast<DType>(j.at("type").get<std::uint8_t>());
  o.op = static_cast<RedOp>(j.at("op").get<std::uint8_t>());
  o.root = j.at("root");
  o.count = j.at("count");
  o.state = static_cast<OpState>(j.at("state").get<std::uint8_t>() % 4);
  o.started_s = j.at("started_s");
  o.ended_s = j.at("ended_s");
  o.surveyed = j.contains("peers");
  if (!o.surveyed) return o;
  o.part = j.at("part");
  o.rounds = j.at("rounds");
  o.rounds_done = j.at("rounds_done");
  for (const json& p : j.at("peers"))
    o.peers.push_back({p.at("peer"), p.at("link"), p.at("sends_posted"), p.at("sends_done"),
                       p.at("recvs_posted"), p.at("recvs_done"), p.at("sends_on"),
                       p.at("recvs_on")});
  return o;
}

}  // namespace

const char* name(OpState state) {
  switch (state) {
    case OpState::kStarted:
      return "started";
    case OpState::kDone:
      return "done";
    case OpState::kFailed:
      return "failed";
    default:
      return "none";
  }
}

std::string title(const OperationReport& o) {
  if (!o.message)
    return fmt::format("{}{}{} #{}", o.replay ? "replayed " : "", name(o.collective),
                       o.uneven ? "_v" : "", o.sequence);
  return fmt::format("{} #{} {} rank {}", o.sends ? "send" : "recv", o.sequence,
                     o.sends ? "to" : "from", o.root);
}

std::string arguments(const OperationReport& o) {
  if (o.collective == Collective::kBarrier) return "no arguments";
  std::string text = fmt::format("{} x {}", o.count, name(o.type));
  if (o.uneven)
    text += by_pairs(o) ? " sent" : fmt::format(" in all (digest of the counts {:06x})", o.digest);
  if (reduces(o.collective)) text += fmt::format(", {}", name(o.op));
  if (rooted(o.collective)) text += fmt::format(", root {}", o.root);
  return text;
}

std::string encode(const Testimony& t) {
  json j = {{"schema", "weft.testimony/1"},
            {"rank", t.rank},
            {"host", t.host},
            {"machine", t.machine},
            {"pid", t.pid},
            {"own", t.own},
            {"state", std::string(1, t.state)},
            {"waits_s", t.waits_s},
            {"begun", t.begun},
            {"links", t.links},
            {"counters", t.counters},
            {"operations", json::array()}};
  for (const OperationReport& o : t.operations) j["operations"].push_back(to_json(o));
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

namespace {

Testimony testimony_from(const json& j) {
  Testimony t;
  t.rank = j.at("rank");
  t.host = j.at("host");
  t.machine = j.at("machine");
  t.pid = j.at("pid");
  t.own = j.at("own");
  const std::string state = j.at("state");
  if (state.size() == 1) t.state = state[0];
  t.waits_s = j.at("waits_s");
  t.begun = j.at("begun");
  t.links = j.at("links").get<std::vector<std::string>>();
  t.counters = j.at("counters").get<std::vector<std::string>>();
  for (const json& o : j.at("operations")) t.operations.push_back(operation_from(o));
  return t;
}

}  // namespace

Testimony decode_testimony(std::string_view text) {
  try {
    return testimony_from(json::parse(text));
  } catch (const json::exception& e) {
    throw Error(fmt::format("not a testimony of a rank: {}", e.what()));
  }
}

std::string encode(const std::vector<Testimony>& testimonies) {
  std::string text = "[";
  for (const Testimony& t : testimonies) {
    if (text.size() > 1) text += ',';
    text += encode(t);
  }
  text += ']';
  return text;
}

std::vector<Testimony> collect(const std::vector<std::string>& texts) {
  std::map<Rank, Testimony> by_rank;
  for (const std::string& text : texts) {
    const json all = json::parse(text, nullptr, false);
    if (!all.is_array()) continue;
    for (const json& one : all) try {
        Testimony t = testimony_from(one);
        const auto known = by_rank.find(t.rank);
        if (known == by_rank.end() || (t.own && !known->second.own)) by_rank[t.rank] = std::move(t);
      } catch (const json::exception&) {
        continue;
      }
  }
  std::vector<Testimony> result;
  for (auto& [rank, t] : by_rank) result.push_back(std::move(t));
  return result;
}

char process_state(int pid, std::uint64_t born) {
  const Stat stat = read_stat(pid);
  return born != 0 && stat.born != 0 && stat.born != born ? 'X' : stat.state;
}

std::uint64_t process_born(int pid) { return read_stat(pid).born; }

}  // namespace weft
