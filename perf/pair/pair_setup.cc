// Finds the ends and devices of a pair test, and compares flags. Does not measure.
#include "perf/pair/pair_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "topo/base/clock.h"
#include "topo/discover.h"
#include "transport/control/socket.h"
#include "transport/fault.h"
#include "transport/launch/failures.h"

namespace weft {

JobSpec client_or_server(const PairOptions& o) {
  JobSpec spec;
  spec.size = 2;
  spec.rank = o.server.empty() ? 0 : 1;
  spec.launcher = "none";
  spec.address = o.server.empty() ? "0.0.0.0" : o.server;
  spec.ports = {static_cast<std::uint16_t>(o.tcp_port)};
  // Like perftest's, connections are not protected unless the user sets a secret at both ends.
  const char* secret = std::getenv("WEFT_SECRET");
  spec.secret = secret != nullptr && *secret != '\0' ? secret : "weft perf";
  if (spec.rank == 0) {
    fmt::print(stderr, " # waiting for the client, on TCP port {}\n", o.tcp_port);
    return spec;
  }
  std::string problem;
  const auto endpoints = resolve(spec.address, spec.ports, problem);
  if (endpoints.empty()) throw Error(fmt::format("server {}: {}", o.server, problem));
  const double end = now_s() + o.timeout_s();
  for (bool said = false; std::none_of(endpoints.begin(), endpoints.end(), somebody_listens);) {
    if (!std::exchange(said, true))
      fmt::print(stderr, " # no server listens at {} port {} yet; trying for {} s\n", o.server,
                 o.tcp_port, o.timeout_s());
    if (now_s() > end)
      throw Error(
          fmt::format("no server listens at {} port {} after {} s (--timeout-ms): start the same "
                      "command without a host there, or give both -p",
                      o.server, o.tcp_port, o.timeout_s()));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return spec;
}

Nic device_named(const std::string& name) {
  std::vector<std::string> present;
  for (const Nic& nic : discover_host().nics) {
    if (nic.name == name) return nic;
    present.push_back(nic.name);
  }
  throw Error(fmt::format("-d {}: this host has no such device; present: {}", name,
                          fmt::join(present, ", ")));
}

Nic rail_for(const PairOptions& o, Nic rail) {
  if (o.verbs() && !rail.rdma)
    throw Error(
        fmt::format("--op {}: missing capability: an RDMA device ({} is none); -d or "
                    "WEFT_RAILS names one, --op tcp does without",
                    o.op, rail.name));
  if (o.op == "tcp" && rail.rdma) {
    if (rail.netdev.empty())
      throw Error(fmt::format("--op tcp: {} has no network interface; -d names one", rail.name));
    rail.name = rail.netdev;
    rail.rdma = false;
  }
  return rail;
}

std::string agreement(const PairOptions& o) {
  return fmt::format(
      "{} --op {} -s {} -n {} -D {} -q {} -t {} -l {} -b {} --check {} --pairs {} --seed {}",
      name(o.test), o.op, fmt::join(o.sizes(), ","), o.iterations_or_default(), o.seconds, o.qps,
      o.depth, o.list, o.both_ways, o.validate, o.pairs, o.seed);
}

std::size_t damage_from(Rank me) {
  const char* text = std::getenv("WEFT_FAULT");
  if (text == nullptr || *text == '\0') return SIZE_MAX;
  const Fault fault = fault_from(text);
  if (fault.kind != Fault::Kind::kFlip)
    throw UsageError(fmt::format("WEFT_FAULT={}: pairs know flip only", text));
  return fault.rank == kNoRank || fault.rank == me ? fault.min_bytes : SIZE_MAX;
}

std::string differing(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string flag, x, y;
  std::vector<std::string> all;
  while (left >> x && right >> y) {
    if (x != y) all.push_back(fmt::format("{}{} and {}", flag.empty() ? "" : flag + " ", x, y));
    flag = x == y && x.starts_with("-") ? x : "";
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace weft
