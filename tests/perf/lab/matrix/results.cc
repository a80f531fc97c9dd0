// Writes results as lines of JSON, and reads them back.
#include "perf/lab/matrix/results.h"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "topo/base/status.h"

namespace weft {
namespace {

MatrixHead head_from(const nlohmann::ordered_json& json) {
  if (json.value("schema", "") != "weft.matrix/1") throw Error("not the head of a matrix");
  MatrixHead head;
  json.at("lab").get_to(head.lab.name);
  json.at("hosts").get_to(head.lab.hosts);
  json.at("rails").get_to(head.lab.rails);
  json.at("seed").get_to(head.seed);
  json.at("rate").get_to(head.rate);
  json.at("validate").get_to(head.validate);
  return head;
}

Claim claim_from(const nlohmann::ordered_json& json) {
  Claim claim;
  json.at("id").get_to(claim.id);
  json.at("severity").get_to(claim.severity);
  json.at("place").get_to(claim.place);
  json.at("host").get_to(claim.host);
  json.at("rail").get_to(claim.rail);
  json.at("direction").get_to(claim.direction);
  json.at("peer").get_to(claim.peer);
  json.at("unknown").get_to(claim.unknown);
  json.at("explained").get_to(claim.explained);
  json.at("text").get_to(claim.text);
  return claim;
}

TrialResult result_from(const nlohmann::ordered_json& json, const MatrixLab& lab) {
  TrialResult result;
  json.at("run").get_to(result.trial.id);
  for (const auto& fault : json.at("faults")) result.trial.faults.push_back(fault_from_json(fault));
  json.at("inject_after_s").get_to(result.trial.inject_after_s);
  json.at("busy_core").get_to(result.trial.busy_core);
  json.at("verdict").get_to(result.seen.verdict);
  for (const auto& claim : json.at("claims")) result.seen.claims.push_back(claim_from(claim));
  json.at("exit_code").get_to(result.exit_code);
  json.at("seconds").get_to(result.seconds);
  json.at("problem").get_to(result.problem);
  result.match = match(result.trial, result.seen, lab);
  return result;
}

}  // namespace

nlohmann::ordered_json to_json(const MatrixHead& head) {
  return {{"schema", "weft.matrix/1"}, {"lab", head.lab.name}, {"hosts", head.lab.hosts},
          {"rails", head.lab.rails},   {"seed", head.seed},    {"rate", head.rate},
          {"validate", head.validate}};
}

nlohmann::ordered_json to_json(const TrialResult& result) {
  auto faults = nlohmann::ordered_json::array(), claims = faults;
  for (const LabFault& fault : result.trial.faults) faults.push_back(to_json(fault));
  for (const Claim& claim : result.seen.claims) {
    claims.push_back({{"id", claim.id},
                      {"severity", claim.severity},
                      {"place", claim.place},
                      {"host", claim.host},
                      {"rail", claim.rail},
                      {"direction", claim.direction},
                      {"peer", claim.peer},
                      {"unknown", claim.unknown},
                      {"explained", claim.explained},
                      {"text", claim.text}});
  }
  return {{"run", result.trial.id},
          {"faults", faults},
          {"inject_after_s", result.trial.inject_after_s},
          {"busy_core", result.trial.busy_core},
          {"verdict", result.seen.verdict},
          {"claims", claims},
          {"exit_code", result.exit_code},
          {"seconds", result.seconds},
          {"problem", result.problem}};
}

MatrixResults read_results(const std::string& path, const MatrixHead& head_of_a_new_file) {
  MatrixResults results{.head = head_of_a_new_file, .runs = {}};
  std::ifstream file(path);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      const auto json = nlohmann::ordered_json::parse(line);
      if (number == 1) {
        results.head = head_from(json);
      } else {
        results.runs.push_back(result_from(json, results.head.lab));
      }
    } catch (const std::exception& error) {
      if (number > 1 && file.peek() == EOF) break;  // a truncated last line
      throw Error(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
  return results;
}

}  // namespace weft
