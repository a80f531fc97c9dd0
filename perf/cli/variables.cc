// The list of variables; tests/perf/cli/variables_test.cc compares it with the sources.
#include "perf/cli/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "topo/base/text.h"

namespace weft {

std::span<const std::string> weft_variables() {
  // Without the prefix "WEFT_".
  static const std::vector<std::string> names = {"BUDGET_S",
                                                 "COUNTERS",
                                                 "CROSS_RAIL",
                                                 "CUDA_MEMOPS",
                                                 "DETERMINISTIC",
                                                 "DEVICE",
                                                 "DOCTOR_JSON",
                                                 "EMULATE_RAILS",
                                                 "FAILOVER",
                                                 "FAULT",
                                                 "FLAGS",
                                                 "GATHER_BYTES",
                                                 "GPUDIRECT",
                                                 "HOST_ID",
                                                 "INTEGRITY",
                                                 "LAB",
                                                 "LAB_GUEST",
                                                 "LAUNCHER",
                                                 "LEAF",
                                                 "LIBRARY",
                                                 "LOCAL_RANK",
                                                 "LOG",
                                                 "METRICS",
                                                 "MPI",
                                                 "MPI_COUNTS",
                                                 "PREFIX",
                                                 "PRESET",
                                                 "PROFILE",
                                                 "PROGRESS_THREAD",
                                                 "RAILS",
                                                 "RAIL_GBPS",
                                                 "RANK",
                                                 "REPLACES_A_RANK",
                                                 "ROOT",
                                                 "ROOT_FD",
                                                 "SECRET",
                                                 "SECRET_FILE",
                                                 "SETUP",
                                                 "SHM_COPY",
                                                 "SIZE",
                                                 "SLOW_MS",
                                                 "SLOW_PORTS",
                                                 "SLURM_SETTINGS",
                                                 "SOFTROCE_KERNEL",
                                                 "SPREAD",
                                                 "STORM_SEED",
                                                 "STORM_SEEDS",
                                                 "TCP_DATAGRAMS",
                                                 "TIMEOUT_MS",
                                                 "TRACE",
                                                 "TRAIN_STARTS",
                                                 "UNEXPECTED_BYTES",
                                                 "UNEXPECTED_TOTAL_BYTES",
                                                 "VERBS_CACHE_BYTES",
                                                 "VERBS_CACHE_ENTRIES",
                                                 "VERBS_CONNECTIONS",
                                                 "VERBS_DSCP",
                                                 "VERBS_ECE",
                                                 "VERBS_GID_INDEX",
                                                 "VERBS_HUGE_PAGES",
                                                 "VERBS_INLINE_BYTES",
                                                 "VERBS_MIN_RNR_TIMER",
                                                 "VERBS_MTU",
                                                 "VERBS_ONE_THREAD",
                                                 "VERBS_PKEY",
                                                 "VERBS_PORT",
                                                 "VERBS_QPS",
                                                 "VERBS_RELAXED_ORDERING",
                                                 "VERBS_RETRY_COUNT",
                                                 "VERBS_RNR_RETRY",
                                                 "VERBS_SEND_DEPTH",
                                                 "VERBS_SL",
                                                 "VERBS_SLOTS",
                                                 "VERBS_SLOT_BYTES",
                                                 "VERBS_TEST_DEVICES",
                                                 "VERBS_TIMEOUT",
                                                 "VERBS_TRAFFIC_CLASS",
                                                 "VERBS_WINDOWS",
                                                 "VERBS_WR"};
  return names;
}

std::vector<std::string> misspelt_variables(const char* const* environment) {
  constexpr std::string_view kBeginning = "WEFT_";
  std::vector<std::string> warnings;
  for (; *environment != nullptr; ++environment) {
    const std::string_view all = *environment;
    const std::string_view name = all.substr(0, all.find('='));
    if (!name.starts_with(kBeginning)) continue;
    const std::string_view rest = name.substr(kBeginning.size());
    if (std::ranges::count(weft_variables(), rest) > 0) continue;
    if (const std::string like = word_like(rest, weft_variables()); !like.empty())
      warnings.push_back(fmt::format("{} is set, and nothing reads it; did you mean {}{}?", name,
                                     kBeginning, like));
  }
  return warnings;
}

}  // namespace weft
