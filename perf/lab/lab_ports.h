// The part that all labs share: the rates of ports, the bytes that crossed them, and the report.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

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
std::string random_secret();                                   // 32 hexadecimal digits

// Parses the script's answer: lines of "h1 rail0 TX RX".
std::vector<LabPort> parse_ports(const std::string& text);
// Returns the bytes that crossed each port between two answers.
std::vector<LabPort> difference(std::vector<LabPort> after, const std::vector<LabPort>& before);

struct LabReport {
  LabFacts facts;
  int ranks_per_host = 0;
  std::vector<std::string> command;
  std::vector<LabPort> ports;
  double seconds = 0;
  int exit_code = 0;
};
// Writes the report as JSON (weft.lab/1). Throws Error naming `path` when writing fails.
void write_lab_report(std::ofstream& file, const std::string& path, const LabReport& report);
void print_ports(const std::vector<LabPort>& ports);  // a table on stderr

// Opens the file of `--json` before anything runs, so that a bad path costs nothing. The file
// is not open where `path` is empty. Throws Error.
std::ofstream open_counters(const std::string& path);

}  // namespace weft
