// The common part of both labs: the ranks, the bytes that crossed the ports, and the report. Does
// not create labs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perf/lab/lab_ranks.h"

namespace weft {

struct LabPort {
  std::string host, rail;
  std::int64_t tx_bytes = 0, rx_bytes = 0;
};

// A running lab, as its script describes it.
struct LabFacts {
  int hosts = 0, rails = 0;
  std::vector<std::string> rates;  // rate of each rail, in tc's format; empty if not shaped
};

// Returns the Gb/s of a rate in tc's format, such as "400mbit". Throws Error on any other text.
double lab_gbps_of(const std::string& rate);
std::vector<std::string> split_list(const std::string& list);  // splits the list at commas

// Parses the script's answers: words such as "hosts=4 rails=2 rates=400mbit,100mbit", and lines of
// "h1 rail0 TX RX".
LabFacts parse_facts(const std::string& text);
std::vector<LabPort> parse_ports(const std::string& text);

// The job of a lab: a command for every rank, and where to report the bytes that crossed the ports.
struct LabJob {
  int hosts = 2, ranks_per_host = 1, rails = 1;
  std::vector<std::string> command;
  int grace_ms = 60000;
  bool summary = false;
  std::string counters_file;
};
void add_job_options(CLI::App& lab, LabJob& job);  // adds all options except hosts, ranks and rails

// Names and addresses of a lab's hosts, by index.
struct LabHosts {
  std::string root;  // the address at which rank 0 listens
  std::function<std::string(int host)> name;
  std::function<std::string(int host, int rail)> rail;
  // Words that precede the command; may be {}.
  std::function<std::vector<std::string>(int host)> enter;
};
// Returns the ranks of the job. `rates`: the rates of the rails, in tc's format; empty: unknown.
std::vector<RankCommand> ranks_of(const LabJob& job, const std::vector<std::string>& rates,
                                  const LabHosts& hosts);
// Runs the ranks, and returns their exit code. Writes the report (weft.lab/1) and the summary if
// the job asks for them. Needs a SignalGuard. Throws Error, before anything runs, if the report
// cannot be written.
int run_counted(const LabJob& job, const LabFacts& facts, const std::vector<RankCommand>& ranks,
                const std::function<std::vector<LabPort>()>& counters);

}  // namespace weft
