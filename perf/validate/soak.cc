// Summarizes the samples of a minute of a soak.
#include "perf/validate/soak.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/validate/report/faults.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {

std::string soak_line(const Report& report, const std::vector<Finding>& findings, std::size_t first,
                      double seconds, double of_seconds) {
  std::size_t flows = 0, silent = 0;
  const FlowSample* slowest = nullptr;
  double packets = 0, again = 0;
  for (std::size_t i = first; i < report.samples.flows.size(); ++i) {
    const FlowSample& flow = report.samples.flows[i];
    if (report.samples.probe_of(flow) != Probe::kRate) continue;
    ++flows;
    if (!flow.reached) ++silent;
    if (flow.reached && (!slowest || flow.gbps() < slowest->gbps())) slowest = &flow;
    packets += static_cast<double>(flow.packets.value_or(0));
    again += static_cast<double>(flow.retransmits.value_or(0));
  }
  std::string line = fmt::format("soak: {:.0f} of {:.0f} min: {} since", seconds / 60,
                                 of_seconds / 60, counted(flows, "flow"));
  if (slowest)
    line += fmt::format(", the slowest at {} Gb/s ({} -> {})", three_digits(slowest->gbps()),
                        port_in_words(report, slowest->flow.from),
                        port_in_words(report, slowest->flow.to));
  if (silent > 0) line += fmt::format(", {} did not arrive", silent);
  if (packets > 0)
    line +=
        fmt::format(", {} of {} packets sent again", three_digits(again), three_digits(packets));
  Report known;
  for (const Finding& f : findings)
    if (!f.unknown) known.judgement.findings.push_back(f);
  known.verdict = verdict_of(known.judgement.findings);
  return line + fmt::format("; so far {}{}", word_of(known.verdict),
                            known.verdict == Verdict::kOk ? "" : " - " + headline(known));
}

}  // namespace weft::fabric
