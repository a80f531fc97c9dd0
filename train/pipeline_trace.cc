#include "train/pipeline_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "coll/trace.h"
#include "train/pipeline_checker.h"

namespace weft::train {

void write_pipeline_trace(const std::string& path, Rank rank, const PipelineShape& shape,
                          const std::vector<PipelineRecord>& records) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) throw Error(fmt::format("cannot write the trace {}: does its folder exist?", path));
  fmt::print(file,
             "{{\"traceEvents\":[\n{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_name\",\"args\":"
             "{{\"name\":\"rank {0}\"}}}}",
             rank);
  for (int chunk = 0; chunk < shape.chunks; ++chunk)
    fmt::print(file,
               ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{"
               "\"name\":\"stage {}\"}}}}",
               rank, chunk, chunk * shape.ranks + rank % shape.ranks);
  for (const PipelineRecord& r : records)
    fmt::print(file,
               ",\n{{\"ph\":\"X\",\"cat\":\"pipeline\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":"
               "{:.3f},\"name\":\"{}\",\"args\":{{\"microbatch\":{},\"stage\":{}}}}}",
               rank, r.action.stage / shape.ranks, static_cast<double>(r.begin_ns) / 1e3,
               static_cast<double>(r.end_ns - r.begin_ns) / 1e3, describe(r.action, shape),
               r.action.microbatch, r.action.stage);
  fmt::print(
      file,
      "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{{\"schema\":\"weft.trace/1\",\"rank\":{},"
      "\"clock_ahead_us\":0,\"clock_uncertain_us\":0,\"dropped\":0}}}}\n",
      rank);
  std::fclose(file);
}

namespace {

struct Event {
  PipelineAction action;
  double begin, end;  // us
};

// F, B and W of one rank, as they were done.
std::vector<Event> read_events(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error(
        fmt::format("pipeline trace {}: cannot be read; `weft train --trace FILE` with "
                    "--pp writes it, of every rank",
                    path));
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded() || !json.contains("traceEvents"))
    throw Error(fmt::format("pipeline trace {}: not a trace", path));
  std::vector<Event> all;
  for (const auto& e : json["traceEvents"]) {
    if (e.value("cat", "") != "pipeline") continue;
    const char op = e["name"].get<std::string>()[0];
    const PipeOp what = op == 'F'   ? PipeOp::kForward
                        : op == 'B' ? PipeOp::kBackwardInput
                                    : PipeOp::kBackwardWeight;
    const double begin = e["ts"], length = e["dur"];
    all.push_back({{what, e["args"]["microbatch"], e["args"]["stage"]}, begin, begin + length});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Event& a, const Event& b) { return a.begin < b.begin; });
  return all;
}

}  // namespace

PipelineSchedule schedule_of_trace(const std::string& path, const PipelineSchedule& planned) {
  PipelineSchedule seen = planned;
  std::map<std::pair<PipeOp, std::pair<int, int>>, Event> events;
  for (Rank r = 0; r < planned.shape.ranks; ++r) {
    const std::string file = file_of_rank(path, r);
    const auto done = read_events(file);
    auto next = done.begin();
    for (PipelineAction& a : seen.of_rank[static_cast<std::size_t>(r)]) {
      if (!computes(a.op)) continue;
      if (next == done.end()) break;
      a = (next++)->action;
    }
    const auto wanted = std::count_if(seen.of_rank[static_cast<std::size_t>(r)].begin(),
                                      seen.of_rank[static_cast<std::size_t>(r)].end(),
                                      [](const PipelineAction& a) { return computes(a.op); });
    if (wanted != std::distance(done.begin(), done.end()))
      throw Error(
          fmt::format("pipeline trace {}: {} F, B and W are in it, {} in the schedule {} of "
                      "{} micro-batches: give --schedule, --stages, --chunks and "
                      "--microbatches of that run",
                      file, done.size(), wanted, planned.name, planned.shape.microbatches));
    for (const Event& e : done) events[{e.action.op, {e.action.microbatch, e.action.stage}}] = e;
  }
  // What each needs from another stage had ended when it began: all on one machine's clock.
  for (const auto& [key, e] : events) {
    const bool forward = e.action.op == PipeOp::kForward;
    const int other = forward ? e.action.stage - 1 : e.action.stage + 1;
    if (e.action.op == PipeOp::kBackwardWeight || other < 0 || other >= planned.shape.stages())
      continue;
    const auto before = events.find({e.action.op, {e.action.microbatch, other}});
    if (before == events.end() || before->second.end > e.begin)
      throw Error(
          fmt::format("pipeline trace {}: {} of stage {} began before that of stage {} had "
                      "ended: are these files of one run on one machine?",
                      path, describe(e.action, planned.shape), e.action.stage, other));
  }
  if (const std::string fault = check(seen); !fault.empty())
    throw Error(fmt::format("pipeline trace {}: not what a schedule can be: {}", path, fault));
  return seen;
}

}  // namespace weft::train
