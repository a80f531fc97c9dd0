// Writes and reads traces as JSON. Executes no schedules.
#include "train/pipeline/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "coll/observe/trace.h"
#include "train/pipeline/checker.h"

namespace weft::train {

void write_pipeline_trace(const std::string& path, Rank rank, const std::vector<Rank>& pipeline,
                          std::string_view schedule, const PipelineShape& shape,
                          const std::vector<PipelineRecord>& records,
                          const std::vector<BroughtSamples>& brought) {
  const auto first_stage = std::ranges::find(pipeline, rank) - pipeline.begin();
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
               rank, chunk, chunk * shape.ranks + first_stage);
  if (!brought.empty())
    fmt::print(file,
               ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{"
               "\"name\":\"samples\"}}}}",
               rank, shape.chunks);
  for (const BroughtSamples& b : brought) {
    const auto all = static_cast<std::uint64_t>(shape.microbatches);
    fmt::print(file,
               ",\n{{\"ph\":\"X\",\"cat\":\"samples\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":"
               "{:.3f},\"name\":\"samples of F{}\",\"args\":{{\"microbatch\":{},\"step\":{}}}}}",
               rank, shape.chunks, static_cast<double>(b.begin_ns) / 1e3,
               static_cast<double>(b.end_ns - b.begin_ns) / 1e3, b.item % all, b.item % all,
               b.item / all + 1);
  }
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
      "\"pipeline\":[{}],\"schedule\":\"{}\",\"micro_batches\":{},\"chunks\":{},"
      "\"clock_ahead_us\":0,\"clock_uncertain_us\":0,\"dropped\":0}}}}\n",
      rank, fmt::join(pipeline, ","), schedule, shape.microbatches, shape.chunks);
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || failed)
    throw Error(fmt::format("cannot write the trace {}: is its disk full?", path));
}

namespace {

struct Event {
  PipelineAction action;
  double begin, end;  // us
};

struct RankTrace {
  std::vector<Rank> pipeline;
  std::optional<PipelinePlan> plan;
  std::vector<Event> events;  // F, B and W in executed order
};

RankTrace read_rank(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error(
        fmt::format("pipeline trace {}: cannot be read; `weft train --trace FILE` with "
                    "--pp writes it, of every rank",
                    path));
  RankTrace trace;
  try {
    auto json = nlohmann::json::parse(file);
    trace.pipeline = json.at("otherData").at("pipeline").get<std::vector<Rank>>();
    if (const auto& about = json["otherData"]; about.contains("schedule"))
      trace.plan =
          PipelinePlan{about.at("schedule").get<std::string>(),
                       {static_cast<int>(trace.pipeline.size()),
                        about.at("micro_batches").get<int>(), about.at("chunks").get<int>()}};
    for (const auto& e : json.at("traceEvents")) {
      if (e.value("cat", "") != "pipeline") continue;
      const auto name = e.at("name").get<std::string>();
      const PipeOp what = name.starts_with('F')   ? PipeOp::kForward
                          : name.starts_with('B') ? PipeOp::kBackwardInput
                                                  : PipeOp::kBackwardWeight;
      const double begin = e.at("ts"), length = e.at("dur");
      const auto& args = e.at("args");
      trace.events.push_back(
          {{what, args.at("microbatch"), args.at("stage")}, begin, begin + length});
    }
  } catch (const nlohmann::json::exception&) {
    throw Error(fmt::format("pipeline trace {}: not a trace of a pipeline", path));
  }
  std::ranges::stable_sort(trace.events, {}, &Event::begin);
  return trace;
}

}  // namespace

std::optional<PipelinePlan> plan_of_trace(const std::string& path) {
  return read_rank(file_of_rank(path, 0)).plan;
}

PipelineSchedule schedule_of_trace(const std::string& path, const PipelineSchedule& planned) {
  PipelineSchedule seen = planned;
  std::map<std::pair<PipeOp, std::pair<int, int>>, Event> events;
  const std::string first = file_of_rank(path, 0);
  const std::vector<Rank> pipeline = read_rank(first).pipeline;
  if (pipeline.size() != static_cast<std::size_t>(planned.shape.ranks))
    throw Error(
        fmt::format("pipeline trace {}: of a pipeline of {} ranks, not {}: give --stages {}", first,
                    pipeline.size(), planned.shape.ranks, pipeline.size()));
  for (Rank r = 0; r < planned.shape.ranks; ++r) {
    const std::string file = file_of_rank(path, pipeline[static_cast<std::size_t>(r)]);
    const auto done = read_rank(file).events;
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
                      "--micro-batches of that run",
                      file, done.size(), wanted, planned.name, planned.shape.microbatches));
    for (const Event& e : done) events[{e.action.op, {e.action.microbatch, e.action.stage}}] = e;
  }
  // Inputs from another stage must end before the action begins (one machine, one clock).
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
