// Parses the port counters of a lab, and writes its report. Does not know how a lab is made.
#include "perf/lab/lab_ports.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

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

std::string random_secret() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw Error("getrandom failed");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::vector<LabPort> parse_ports(const std::string& text) {
  std::vector<LabPort> ports;
  std::stringstream words(text);
  for (LabPort p; words >> p.host >> p.rail >> p.tx_bytes >> p.rx_bytes;) ports.push_back(p);
  return ports;
}

std::vector<LabPort> difference(std::vector<LabPort> after, const std::vector<LabPort>& before) {
  for (std::size_t i = 0; i < after.size() && i < before.size(); ++i) {
    after[i].tx_bytes -= before[i].tx_bytes;
    after[i].rx_bytes -= before[i].rx_bytes;
  }
  return after;
}

void write_lab_report(std::ofstream& file, const std::string& path, const LabReport& report) {
  nlohmann::ordered_json json = {{"schema", "weft.lab/1"},
                                 {"hosts", report.facts.hosts},
                                 {"ranks_per_host", report.ranks_per_host},
                                 {"rails", report.facts.rails},
                                 {"rates", report.facts.rates},
                                 {"command", report.command},
                                 {"exit_code", report.exit_code},
                                 {"seconds", report.seconds},
                                 {"max_host_tx_bytes", most_sent_by_a_host(report.ports)}};
  for (const LabPort& port : report.ports) {
    json["ports"].push_back({{"host", port.host},
                             {"rail", port.rail},
                             {"tx_bytes", port.tx_bytes},
                             {"rx_bytes", port.rx_bytes}});
  }
  file << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  file.flush();
  if (!file) throw Error(fmt::format("--json {}: writing failed", path));
}

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

std::ofstream open_counters(const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  const bool console = path == "-";
  file.open(console ? "/dev/stdout" : path, console ? std::ios::app : std::ios::trunc);
  if (!file) throw Error(fmt::format("--json {}: cannot be written", path));
  return file;
}

}  // namespace weft
