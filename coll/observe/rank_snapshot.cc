// Writes and reads snapshots as JSON, and reads the state of processes from /proc. This file is
// independent of the recorder.
#include "coll/observe/rank_snapshot.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <type_traits>
#include <utility>

namespace weft {
namespace {

using nlohmann::json;

struct Stat {
  char state = '?';
  std::uint64_t born = 0;
};

// Fields 3 and 22 of /proc/PID/stat; the process name before them may contain any characters.
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

// Visits every field with its key, for both directions.
template <class Report, class Visit>
void each_field_of_report(Report& o, const Visit& visit) {
  each_field(o, visit);
  visit("number", o.number);
  visit("state", o.state);
  visit("started_s", o.started_s);
  visit("ended_s", o.ended_s);
}
template <class Report, class Visit>
void each_field_of_survey(Report& o, const Visit& visit) {
  visit("part", o.part);
  visit("rounds", o.rounds);
  visit("rounds_done", o.rounds_done);
}
template <class Progress, class Visit>
void each_field_of_peer(Progress& p, const Visit& visit) {
  visit("peer", p.peer);
  visit("link", p.link);
  visit("sends_posted", p.sends_posted);
  visit("sends_done", p.sends_done);
  visit("recvs_posted", p.recvs_posted);
  visit("recvs_done", p.recvs_done);
  visit("sends_on", p.sends_on);
  visit("recvs_on", p.recvs_on);
}
template <class Enum>
Enum named(const std::string& word) {
  std::optional<Enum> found;
  if constexpr (std::is_same_v<Enum, Collective>) found = collective_from(word);
  if constexpr (std::is_same_v<Enum, DType>) found = dtype_from(word);
  if constexpr (std::is_same_v<Enum, RedOp>) found = redop_from(word);
  if constexpr (std::is_same_v<Enum, Codec>) found = codec_from(word);
  if constexpr (std::is_same_v<Enum, OpState>)
    for (const OpState s : {OpState::kNone, OpState::kStarted, OpState::kDone, OpState::kFailed})
      if (word == name(s)) found = s;
  // "?": the record of the rank is damaged.
  if (!found && word != "?") throw Error(fmt::format("not a snapshot of a rank: '{}'", word));
  return found.value_or(Enum{});
}
auto into(json& j) {
  return [&j](const char* key, const auto& field) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(field)>>)
      j[key] = name(field);
    else
      j[key] = field;
  };
}
auto out_of(const json& j) {
  return [&j](const char* key, auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>)
      field = named<Field>(j.at(key).get<std::string>());
    else
      j.at(key).get_to(field);
  };
}

json to_json(const OperationReport& o) {
  json j = {{"title", title(o)}, {"arguments", arguments(o)}};
  each_field_of_report(o, into(j));
  if (!o.surveyed) return j;
  each_field_of_survey(o, into(j));
  j["peers"] = json::array();
  for (const PeerProgress& p : o.peers) each_field_of_peer(p, into(j["peers"].emplace_back()));
  return j;
}

OperationReport operation_from(const json& j) {
  OperationReport o;
  each_field_of_report(o, out_of(j));
  o.surveyed = j.contains("peers");
  if (!o.surveyed) return o;
  each_field_of_survey(o, out_of(j));
  for (const json& p : j.at("peers")) each_field_of_peer(o.peers.emplace_back(), out_of(p));
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

std::string encode(const RankSnapshot& t) {
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

RankSnapshot snapshot_from(const json& j) {
  RankSnapshot t;
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

RankSnapshot decode_snapshot(std::string_view text) {
  try {
    return snapshot_from(json::parse(text));
  } catch (const json::exception& e) {
    throw Error(fmt::format("not a snapshot of a rank: {}", e.what()));
  }
}

std::string encode(const std::vector<RankSnapshot>& snapshots) {
  std::string text = "[";
  for (const RankSnapshot& t : snapshots) {
    if (text.size() > 1) text += ',';
    text += encode(t);
  }
  text += ']';
  return text;
}

std::vector<RankSnapshot> collect(const std::vector<std::string>& texts) {
  std::map<Rank, RankSnapshot> by_rank;
  for (const std::string& text : texts) {
    const json all = json::parse(text, nullptr, false);
    if (!all.is_array()) continue;
    for (const json& one : all) try {
        RankSnapshot t = snapshot_from(one);
        const auto known = by_rank.find(t.rank);
        if (known == by_rank.end() || (t.own && !known->second.own)) by_rank[t.rank] = std::move(t);
      } catch (const json::exception&) {
        continue;
      }
  }
  std::vector<RankSnapshot> result;
  for (auto& [rank, t] : by_rank) result.push_back(std::move(t));
  return result;
}

char process_state(int pid, std::uint64_t born) {
  const Stat stat = read_stat(pid);
  return born != 0 && stat.born != 0 && stat.born != born ? 'X' : stat.state;
}

std::uint64_t process_born(int pid) { return read_stat(pid).born; }

}  // namespace weft
