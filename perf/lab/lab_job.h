// The part that both labs share: who the ranks are, the bytes that crossed the ports, and the
// report. Does not know how a lab is made.
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

// The description that a lab's script gives of a lab that is up.
struct LabFacts {
  int hosts = 0, rails = 0;
  std::vector<std::string> rates;  // of each rail, as tc writes them; empty where not shaped
};

// Returns the Gb/s of a rate as tc writes it, "400mbit". Throws Error on anything else.
double lab_gbps_of(const std::string& rate);
std::vector<std::string> split_list(const std::string& list);  // at commas

// Parses the script's answers: words such as "hosts=4 rails=2 rates=400mbit,100mbit", and lines of
// "h1 rail0 TX RX".
LabFacts parse_facts(const std::string& text);
std::vector<LabPort> parse_ports(const std::string& text);

// What both labs run: a command on every rank, with the bytes that crossed the ports meanwhile.
struct LabJob {
  int hosts = 2, ranks_per_host = 1, rails = 1;
  std::vector<std::string> command;
  int grace_ms = 60000;
  bool summary = false;
  std::string counters_file;
};
void add_job_options(CLI::App& lab, LabJob& job);  // all but hosts, ranks and rails

// Names and places of a lab's hosts, 0, 1 and so on.
struct LabHosts {
  std::string root;  // the address at which rank 0 listens
  std::function<std::string(int host)> name;
  std::function<std::string(int host, int rail)> rail;
  std::function<std::vector<std::string>(int host)> enter;  // words before the command; may be {}
};
// The ranks of the job. `rates` are of the rails, as tc writes them; empty: nobody knows.
std::vector<RankCommand> ranks_of(const LabJob& job, const std::vector<std::string>& rates,
                                  const LabHosts& hosts);
// Runs ranks, and returns their exit code. Writes the report (weft.lab/1) and the summary where
// the job asks for them. Needs a SignalGuard. Throws Error where the report cannot be written,
// before anything runs.
int run_counted(const LabJob& job, const LabFacts& facts, const std::vector<RankCommand>& ranks,
                const std::function<std::vector<LabPort>()>& counters);

}  // namespace weft
