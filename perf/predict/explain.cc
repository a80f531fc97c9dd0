// Explains a collective: candidates, prediction, proof, steps. Does not run it.
#include "perf/predict/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "coll/schedule/check.h"
#include "perf/cli/bytes.h"
#include "perf/cli/names.h"
#include "perf/cli/table.h"
#include "perf/stats/stats.h"
#include "topo/base/status.h"

namespace weft {
namespace {

constexpr int kProvedRanks = 256;

void prove(Explanation& e) {
  const Shape& shape = e.question.call.shape;
  if (shape.nranks > kProvedRanks) return;
  std::vector<Schedule> schedules;
  for (Rank r = 0; r < shape.nranks; ++r) {
    Shape of = shape;
    of.rank = r;
    schedules.push_back(e.chosen.algorithm->build(of));
    e.steps += schedules.back().steps.size();
  }
  CheckOptions options;
  options.root = shape.root;
  e.fault = check(e.question.call.collective, schedules, options);
  e.checked = true;
}

std::string proof_in_words(const Explanation& e) {
  if (!e.checked)
    return fmt::format("not proved: the checker is run for up to {} ranks here", kProvedRanks);
  if (!e.fault.empty()) return "WRONG: " + e.fault;
  return fmt::format("proved: {} steps of {} ranks do what {} promises, and cannot deadlock",
                     e.steps, e.question.call.shape.nranks, name(e.question.call.collective));
}

// Returns the reason for the choice.
std::string why_chosen(const Explanation& e) {
  const Question& q = e.question;
  const Candidate &best = e.candidates.front(), &chosen = e.chosen;
  const double us = chosen.prediction.time_us, best_us = best.prediction.time_us;
  if (q.algorithm != "auto")
    return us <= best_us ? "asked for by name, and the fastest"
                         : fmt::format("requested by name; {} would take {} us",
                                       best.algorithm->name, format_us(best_us));
  if (chosen.measured_us > 0) {
    const auto fastest = std::ranges::min_element(e.candidates, {}, [](const Candidate& c) {
      return c.measured_us > 0 ? c.measured_us : std::numeric_limits<double>::infinity();
    });
    const std::string measured = fmt::format("measured here: {} us", format_us(chosen.measured_us));
    if (fastest->algorithm == chosen.algorithm)
      return fmt::format("the fastest of those {} ({})", measured, q.profile.topology);
    return fmt::format("{}; the model's pick, which {}, {} us, does not clearly beat ({})",
                       measured, fastest->algorithm->name, format_us(fastest->measured_us),
                       q.profile.topology);
  }
  if (us <= best_us)
    return fmt::format("the fastest by the cost model of {} that apply", e.candidates.size());
  const std::string than = fmt::format("{} ({} us)", best.algorithm->name, format_us(best_us));
  if (us <= kAsGood * best_us)
    return fmt::format("by the cost model as fast as {}, to within 1 %: the first of these", than);
  if (!q.call.shape.slow_ports.empty() && us <= kAsGoodWithSlow * best_us)
    return fmt::format(
        "by the cost model within 5 % of {}, with fewer hops: hosts wait for slow "
        "ports",
        than);
  return fmt::format("{:.0f} % slower than {}, which crosses rails", 100 * (us / best_us - 1),
                     than);
}

}  // namespace

Explanation explain(const Question& q) {
  const ModelCall& call = q.call;
  check_algorithm(call.collective, q.algorithm);
  check_applies(call.collective, q.algorithm, call.shape);
  Explanation e;
  e.question = q;
  for (const Algorithm& a : algorithms())
    if (a.collective == call.collective && a.applies(call.shape))
      e.candidates.push_back({&a,
                              predict(a, call.shape, call.bytes, size_of(call.type), call.model),
                              q.profile.time_us(call.collective, call.shape, call.bytes, a.name)});
  if (e.candidates.empty())
    throw Error(fmt::format("{}: it has no schedules to explain", name(call.collective)));
  std::stable_sort(e.candidates.begin(), e.candidates.end(),
                   [](auto& a, auto& b) { return a.prediction.time_us < b.prediction.time_us; });
  // Use the library's own choice instead of duplicating its rule.
  const Algorithm* choice =
      q.algorithm == "auto"
          ? weft::candidates(call.collective, call.shape, call.bytes, call.model, q.profile)
                .front()
                .algorithm
          : find_algorithm(call.collective, q.algorithm);
  for (const Candidate& c : e.candidates)
    if (c.algorithm == choice) e.chosen = c;
  if (e.chosen.algorithm == nullptr)
    throw Error(fmt::format("{}: no algorithm applies to {} ranks", name(call.collective),
                            call.shape.nranks));
  e.schedule = e.chosen.algorithm->build(call.shape);
  prove(e);
  return e;
}

std::vector<double> chunk_bytes(const Schedule& s, Collective collective, double bytes) {
  const bool blocks = by_blocks(collective);
  const auto block = [&](int c) { return !blocks ? 0 : s.block.empty() ? c : s.block[c]; };
  const auto weight = [&](int c) { return s.weight.empty() ? 1.0 : s.weight[c]; };
  std::vector<double> total(static_cast<std::size_t>(std::max(s.nranks, s.nchunks)));
  for (int c = 0; c < s.nchunks; ++c) total[block(c)] += weight(c);
  const double whole = blocks ? bytes / s.nranks : bytes;
  std::vector<double> sizes;
  for (int c = 0; c < s.nchunks; ++c) sizes.push_back(whole * weight(c) / total[block(c)]);
  return sizes;
}

std::string text(const Explanation& e) {
  const ModelCall& call = e.question.call;
  const Prediction& p = e.chosen.prediction;
  std::string out = fmt::format("weft explain {}: {} bytes of {} over {}\n{}{}\n\n",
                                name(call.collective), format_bytes(call.bytes), name(call.type),
                                where(call), unequal_hosts_in_words(call),
                                in_words(call.machine, call.shape.hosts.size() > 1));
  std::vector<std::vector<std::string>> facts = {
      {"  algorithm", fmt::format("{}: {}", e.chosen.algorithm->name, e.chosen.algorithm->about)},
      {"  why", why_chosen(e)},
      {"  predicted", fmt::format("{} us, algbw {} GB/s, busbw {} GB/s", format_us(p.time_us),
                                  format_GBps(algbw_gbps(call.bytes, p.time_us)),
                                  format_GBps(algbw_gbps(call.bytes, p.time_us) *
                                              busbw_factor(call.collective, call.shape.nranks)))}};
  const double of_bound = p.time_us > 0 ? call.bound.us / p.time_us : 0;
  if (call.bound.us > 0)
    facts.push_back(
        {"  lower bound", fmt::format("{} us ({}): predicted of_bound {:.3f}",
                                      format_us(call.bound.us), call.bound.limiting, of_bound)});
  facts.push_back(
      {"  limited by",
       fmt::format("{} (busiest rail {} us, busiest rank's memory {} us, latency {} us)",
                   p.limiting, format_us(p.rail_us), format_us(p.host_us), format_us(p.alpha_us))});
  for (const Candidate& c : e.candidates)
    if (c.algorithm != e.chosen.algorithm) {
      // A single rank takes no time.
      const double times = p.time_us > 0 ? c.prediction.time_us / p.time_us : 1;
      facts.push_back({"  runner-up", fmt::format("{}: {} us, {:.2f} x", c.algorithm->name,
                                                  format_us(c.prediction.time_us), times)});
      break;
    }
  out += align(facts) +
         above_bound_in_words(of_bound,
                              "the model predicts this algorithm to be faster "
                              "than its links allow, which is wrong") +
         "  " + wrapped(proof_in_words(e), kColumns - 2, "  ") + "\n\n";
  std::vector<std::vector<std::string>> rows = {
      {"  algorithm", "     us", "measured", "by", "about"}};
  for (const Candidate& c : e.candidates)
    rows.push_back(
        {fmt::format("{} {}", c.algorithm == e.chosen.algorithm ? "*" : " ", c.algorithm->name),
         fmt::format("{:>7}", format_us(c.prediction.time_us)),
         fmt::format("{:>8}", c.measured_us > 0 ? format_us(c.measured_us) : "-"),
         c.prediction.limiting, std::string(c.algorithm->about)});
  return out + align(rows);
}

std::string steps_text(const Explanation& e) {
  const Schedule& s = e.schedule;
  const ModelCall& call = e.question.call;
  const auto sizes = chunk_bytes(s, call.collective, static_cast<double>(call.bytes));
  std::vector<std::vector<std::string>> rows = {
      {"  step", "op", "peer", "channel", "chunks", "bytes"}};
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    double bytes = 0;
    for (int c = step.at.first; c < step.at.end(); ++c) bytes += sizes[c];
    rows.push_back({fmt::format("{:>6}", i), name(step.op),
                    fmt::format("{} {}", step.op == Op::kSend ? "->" : "<-", step.peer),
                    fmt::format("{:>7}", step.channel),
                    fmt::format("[{}, {})", step.at.first, step.at.end()),
                    fmt::format("{:>11.0f}", bytes)});
  }
  return fmt::format("rank {} of {}: {} steps over {} chunks\n", s.rank, s.nranks, s.steps.size(),
                     s.nchunks) +
         align(rows);
}

nlohmann::ordered_json to_json(const Explanation& e, bool steps) {
  const ModelCall& q = e.question.call;
  const auto candidate = [](const Candidate& c) {
    return nlohmann::ordered_json{
        {"algorithm", c.algorithm->name},      {"time_us", c.prediction.time_us},
        {"latency_us", c.prediction.alpha_us}, {"rail_us", c.prediction.rail_us},
        {"host_us", c.prediction.host_us},     {"limiting", c.prediction.limiting},
        {"measured_us", c.measured_us}};
  };
  nlohmann::ordered_json json = {{"schema", "weft.explain/1"},
                                 {"collective", name(q.collective)},
                                 {"ranks", q.shape.nranks},
                                 {"hosts", q.shape.hosts.size()},
                                 {"rails", q.rails},
                                 {"bytes", q.bytes},
                                 {"type", name(q.type)},
                                 {"chosen", candidate(e.chosen)},
                                 {"machine", q.machine.name},
                                 {"lower_bound_us", q.bound.us},
                                 {"bound_by", q.bound.limiting},
                                 {"proved", e.checked && e.fault.empty()},
                                 {"fault", e.fault},
                                 {"candidates", nlohmann::ordered_json::array()}};
  for (const Candidate& c : e.candidates) json["candidates"].push_back(candidate(c));
  if (!steps) return json;
  const auto sizes = chunk_bytes(e.schedule, q.collective, static_cast<double>(q.bytes));
  json["rank"] = e.schedule.rank;
  json["chunk_bytes"] = sizes;
  json["steps"] = nlohmann::ordered_json::array();
  for (const Step& s : e.schedule.steps)
    json["steps"].push_back({{"op", name(s.op)},
                             {"peer", s.peer},
                             {"channel", s.channel},
                             {"first", s.at.first},
                             {"count", s.at.count}});
  return json;
}

}  // namespace weft
