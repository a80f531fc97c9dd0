// Starts the ranks of a lab, and reports the bytes that crossed its ports.
#include "perf/lab/lab_job.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "coll/jobs/report.h"
#include "perf/cli/scripts.h"
#include "topo/base/status.h"

namespace weft {
namespace {

std::int64_t sent_by(const std::string& host, const std::vector<LabPort>& ports) {
  std::int64_t bytes = 0;
  for (const LabPort& port : ports) bytes += port.host == host ? port.tx_bytes : 0;
  return bytes;
}

std::int64_t most_sent_by_a_host(const std::vector<LabPort>& ports) {
  std::int64_t most = 0;
  for (const LabPort& port : ports) most = std::max(most, sent_by(port.host, ports));
  return most;
}

std::string random_secret() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw Error("getrandom failed");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::vector<LabPort> difference(std::vector<LabPort> after, const std::vector<LabPort>& before) {
  for (std::size_t i = 0; i < after.size() && i < before.size(); ++i) {
    after[i].tx_bytes -= before[i].tx_bytes;
    after[i].rx_bytes -= before[i].rx_bytes;
  }
  return after;
}

nlohmann::ordered_json lab_json(const LabJob& job, const LabFacts& facts,
                                const std::vector<LabPort>& ports, double seconds, int code) {
  nlohmann::ordered_json json = {{"schema", "weft.lab/1"},
                                 {"hosts", facts.hosts},
                                 {"ranks_per_host", job.ranks_per_host},
                                 {"rails", facts.rails},
                                 {"rates", facts.rates},
                                 {"command", job.command},
                                 {"exit_code", code},
                                 {"seconds", seconds},
                                 {"max_host_tx_bytes", most_sent_by_a_host(ports)}};
  for (const LabPort& port : ports) {
    json["ports"].push_back({{"host", port.host},
                             {"rail", port.rail},
                             {"tx_bytes", port.tx_bytes},
                             {"rx_bytes", port.rx_bytes}});
  }
  return json;
}

// Prints a table to standard error.
void print_ports(const std::vector<LabPort>& ports) {
  fmt::print(stderr, "\n{:<6} {:<7} {:>12} {:>12} {:>18}\n", "host", "rail", "tx MB", "rx MB",
             "of the host's tx");
  for (const LabPort& port : ports) {
    const std::int64_t host_bytes = sent_by(port.host, ports);
    fmt::print(stderr, "{:<6} {:<7} {:>12.3f} {:>12.3f} {:>16.1f} %\n", port.host, port.rail,
               port.tx_bytes / 1e6, port.rx_bytes / 1e6,
               host_bytes > 0 ? 100.0 * port.tx_bytes / host_bytes : 0.0);
  }
  fmt::print(stderr, "most sent by one host: {} bytes\n", most_sent_by_a_host(ports));
}

}  // namespace

double lab_gbps_of(const std::string& rate) {
  constexpr double kLargestGbps = 10000;
  double number = 0;
  const char* const end = rate.data() + rate.size();
  const auto [rest, error] = std::from_chars(rate.data(), end, number, std::chars_format::fixed);
  std::string unit(rest, end);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const double gbps = number * (unit == "bit"    ? 1e-9
                                : unit == "kbit" ? 1e-6
                                : unit == "mbit" ? 1e-3
                                : unit == "gbit" ? 1.0
                                                 : 0.0);
  if (error != std::errc() || !(gbps > 0 && gbps <= kLargestGbps)) {
    throw Error(
        fmt::format("--rate {}: write it like 400mbit, 1gbit or 400mbit,100mbit, at most {} gbit",
                    rate, kLargestGbps));
  }
  return gbps;
}

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> parts;
  std::stringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

LabFacts parse_facts(const std::string& text) {
  LabFacts facts;
  std::stringstream words(text);
  for (std::string word; words >> word;) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word.starts_with("hosts=")) facts.hosts = std::stoi(value);
    if (word.starts_with("rails=")) facts.rails = std::stoi(value);
    if ((word.starts_with("rates=") || word.starts_with("rate=")) && value != "none")
      facts.rates = split_list(value);
  }
  if (facts.rates.size() == 1)
    facts.rates.resize(static_cast<std::size_t>(facts.rails), facts.rates.front());
  return facts;
}

std::vector<LabPort> parse_ports(const std::string& text) {
  std::vector<LabPort> ports;
  std::stringstream words(text);
  for (LabPort p; words >> p.host >> p.rail >> p.tx_bytes >> p.rx_bytes;) ports.push_back(p);
  return ports;
}

void add_job_options(CLI::App& lab, LabJob& job) {
  add_json_option(lab, job.counters_file, "weft.lab/1: the bytes that crossed each port");
  lab.add_flag("--summary", job.summary, "print the bytes that crossed each port");
  lab.add_option("--grace-ms", job.grace_ms,
                 "milliseconds that ranks may run on after the first one failed")
      ->check(CLI::Range(0, 86400000))
      ->capture_default_str();
  lab.add_option("command", job.command, "-- and the command of every rank; `weft` is this binary");
}

std::vector<RankCommand> ranks_of(const LabJob& job, const std::vector<std::string>& rates,
                                  const LabHosts& hosts) {
  // With unequal rails, declare the mean, so that rails x rate remains the rate of a host.
  double gbps = 0;
  for (std::size_t r = 0; r < std::min(rates.size(), static_cast<std::size_t>(job.rails)); ++r)
    gbps += lab_gbps_of(rates[r]) / job.rails;
  std::vector<std::string> command = job.command;
  if (command.front() == "weft") command.front() = this_binary();
  const std::string secret = random_secret();
  std::vector<RankCommand> ranks;
  for (int h = 0; h < job.hosts; ++h) {
    std::vector<std::string> rails;
    for (int r = 0; r < job.rails; ++r) rails.push_back(hosts.rail(h, r));
    for (int l = 0; l < job.ranks_per_host; ++l) {
      RankCommand rank;
      rank.argv = hosts.enter(h);
      rank.argv.insert(rank.argv.end(), command.begin(), command.end());
      rank.environment = {
          {"WEFT_RANK", std::to_string(ranks.size())},
          {"WEFT_SIZE", std::to_string(job.hosts * job.ranks_per_host)},
          {"WEFT_LOCAL_RANK", std::to_string(l)},
          {"WEFT_ROOT", hosts.root},
          {"WEFT_SECRET", secret},
          {"WEFT_HOST_ID", hosts.name(h)},
          {"WEFT_RAILS", fmt::format("{}", fmt::join(rails, ","))},
      };
      if (gbps > 0) rank.environment.emplace_back("WEFT_RAIL_GBPS", fmt::format("{:.6g}", gbps));
      rank.core = h;  // one core per host, shared by its ranks
      ranks.push_back(std::move(rank));
    }
  }
  return ranks;
}

int run_counted(const LabJob& job, const LabFacts& facts, const std::vector<RankCommand>& ranks,
                const std::function<std::vector<LabPort>()>& counters) {
  if (!job.counters_file.empty()) check_report(job.counters_file);
  const std::vector<LabPort> before = counters();
  const auto start = std::chrono::steady_clock::now();
  const int code = run_ranks(ranks, std::chrono::milliseconds(job.grace_ms));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::vector<LabPort> ports = difference(counters(), before);
  if (!job.counters_file.empty())
    write_report(job.counters_file,
                 lab_json(job, facts, ports, took.count(), code)
                         .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                     "\n");
  if (job.summary) print_ports(ports);
  return code;
}

}  // namespace weft
