// Explains a collective: candidates, prediction, proof, steps. Does not run the collective.
#include "perf/predict/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "coll/schedule/check.h"
#include "perf/cli/bytes.h"
#include "perf/cli/names.h"
#include "perf/cli/table.h"
#include "perf/collective/stats.h"
#include "perf/predict/bound.h"
#include "topo/base/status.h"

namespace weft {
namespace {

constexpr int kProvedRanks = 256;

double gbps_of(LinkCost link) { return 8 / (link.us_per_byte * 1e3); }

void prove(Explanation& e) {
  const Shape& shape = e.question.shape;
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
  e.fault = check(e.question.collective, schedules, options);
  e.checked = true;
}

std::string proof_in_words(const Explanation& e) {
  if (!e.checked)
    return fmt::format("not proved: the checker is run for up to {} ranks here", kProvedRanks);
  if (!e.fault.empty()) return "WRONG: " + e.fault;
  return fmt::format("proved: {} steps of {} ranks do what {} promises, and cannot deadlock",
                     e.steps, e.question.shape.nranks, name(e.question.collective));
}

std::string link_in_words(LinkCost link) {
  return fmt::format("{:g} us, {:.3g} Gb/s", link.alpha_us, gbps_of(link));
}

}  // namespace

Explanation explain(const Question& q) {
  check_algorithm(q.collective, q.algorithm);
  check_applies(q.collective, q.algorithm, q.shape);
  Explanation e;
  e.question = q;
  for (const Algorithm& a : algorithms())
    if (a.collective == q.collective && a.applies(q.shape))
      e.candidates.push_back({&a, predict(a, q.shape, q.bytes, size_of(q.type), q.model),
                              q.profile.time_us(q.collective, q.shape, q.bytes, a.name)});
  if (e.candidates.empty())
    throw Error(fmt::format("{}: it has no schedules to explain", name(q.collective)));
  std::stable_sort(e.candidates.begin(), e.candidates.end(),
                   [](auto& a, auto& b) { return a.prediction.time_us < b.prediction.time_us; });
  // The library's own choice, not a repetition of its rule.
  const Algorithm* choice =
      q.algorithm == "auto"
          ? weft::candidates(q.collective, q.shape, q.bytes, q.model, q.profile).front().algorithm
          : find_algorithm(q.collective, q.algorithm);
  for (const Candidate& c : e.candidates)
    if (c.algorithm == choice) e.chosen = c;
  if (e.chosen.algorithm == nullptr)
    throw Error(
        fmt::format("{}: no algorithm applies to {} ranks", name(q.collective), q.shape.nranks));
  e.bound_us = q.shape.hosts.size() > 1 ? bound_of(q.collective, q.shape, q.bytes, q.model).us
                                        : lower_bound_us(q.collective, q.shape, q.bytes, q.model);
  e.schedule = e.chosen.algorithm->build(q.shape);
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
  const Question& q = e.question;
  const auto hosts = static_cast<int>(q.shape.hosts.size());
  const Prediction& p = e.chosen.prediction;
  std::string where =
      fmt::format("{} ranks on {} {}", q.shape.nranks, hosts, hosts == 1 ? "host" : "hosts");
  if (hosts > 1 && q.rails > 0) where += fmt::format(" x {} rails", q.rails);
  std::string out = fmt::format("weft explain {}: {} bytes of {} over {}\n\n", name(q.collective),
                                format_bytes(q.bytes), name(q.type), where);
  std::string why;
  const Candidate& best = e.candidates.front();
  if (q.algorithm != "auto")
    why = best.algorithm == e.chosen.algorithm
              ? "asked for by name, and the fastest"
              : fmt::format("asked for by name; {} would take {} us", best.algorithm->name,
                            format_us(best.prediction.time_us));
  else if (e.chosen.measured_us > 0)
    why = fmt::format("the fastest of those measured here: {} us ({})",
                      format_us(e.chosen.measured_us), q.profile.topology);
  else
    why = fmt::format("the fastest by the cost model of {} that apply", e.candidates.size());
  std::vector<std::vector<std::string>> facts = {
      {"  algorithm", fmt::format("{}: {}", e.chosen.algorithm->name, e.chosen.algorithm->about)},
      {"  why", why},
      {"  predicted", fmt::format("{} us, algbw {} GB/s, busbw {} GB/s", format_us(p.time_us),
                                  format_GBps(algbw_gbps(q.bytes, p.time_us)),
                                  format_GBps(algbw_gbps(q.bytes, p.time_us) *
                                              busbw_factor(q.collective, q.shape.nranks)))}};
  if (e.bound_us > 0)
    facts.push_back({"  lower bound", fmt::format("{} us: predicted of_bound {:.3f}",
                                                  format_us(e.bound_us), e.bound_us / p.time_us)});
  facts.push_back(
      {"  limited by",
       fmt::format("{} (busiest rail {} us, busiest rank's memory {} us, latency {} us)",
                   p.limiting, format_us(p.rail_us), format_us(p.host_us), format_us(p.alpha_us))});
  for (const Candidate& c : e.candidates)
    if (c.algorithm != e.chosen.algorithm) {
      // One rank alone takes no time.
      const double times = p.time_us > 0 ? c.prediction.time_us / p.time_us : 1;
      facts.push_back({"  runner-up", fmt::format("{}: {} us, {:.2f} x", c.algorithm->name,
                                                  format_us(c.prediction.time_us), times)});
      break;
    }
  std::string links = "inside a host " + link_in_words(q.model.host);
  if (hosts > 1) links += "; a rail " + link_in_words(q.model.rail);
  facts.push_back({"  model", links});
  out += align(facts) + "  " + wrapped(proof_in_words(e), kColumns - 2, "  ") + "\n\n";
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
  const auto sizes = chunk_bytes(s, e.question.collective, static_cast<double>(e.question.bytes));
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
  const Question& q = e.question;
  const auto candidate = [](const Candidate& c) {
    return nlohmann::ordered_json{
        {"algorithm", c.algorithm->name},      {"time_us", c.prediction.time_us},
        {"latency_us", c.prediction.alpha_us}, {"rail_us", c.prediction.rail_us},
        {"host_us", c.prediction.host_us},     {"limiting", c.prediction.limiting},
        {"measured_us", c.measured_us}};
  };
  std::size_t smallest = static_cast<std::size_t>(q.shape.nranks);  // a rail for each of its ranks
  for (const auto& ranks : q.shape.hosts) smallest = std::min(smallest, ranks.size());
  nlohmann::ordered_json json = {
      {"schema", "weft.explain/1"},
      {"collective", name(q.collective)},
      {"ranks", q.shape.nranks},
      {"hosts", q.shape.hosts.size()},
      {"rails", q.rails > 0 ? static_cast<std::size_t>(q.rails) : smallest},
      {"bytes", q.bytes},
      {"type", name(q.type)},
      {"chosen", candidate(e.chosen)},
      {"lower_bound_us", e.bound_us},
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
