// Declares and checks the flags of pair tests. Does not use them.
#include "perf/pair/pair_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "perf/cli/bytes.h"
#include "topo/base/status.h"
#include "transport/gpu/device.h"
#include "transport/ucx/ucx.h"
#include "transport/verbs/verbs.h"

namespace weft {
namespace {

// As in perftest: above this size, every message is signaled.
constexpr std::uint64_t kModeratedBytes = 8192;
constexpr std::uint64_t kLargestOfAll = 8 << 20;
constexpr int kLatencyModeration = 32;  // pings per completion

}  // namespace

const char* name(PairTest test) { return test == PairTest::kBandwidth ? "bw" : "lat"; }

std::vector<std::uint64_t> PairOptions::sizes() const {
  if (all_sizes) return size_ladder(2, kLargestOfAll, 2);
  if (size.empty()) return {test == PairTest::kBandwidth ? std::uint64_t{65536} : 2};
  std::vector<std::uint64_t> result;
  for (std::size_t at = 0; at <= size.size();) {
    const std::size_t comma = std::min(size.find(',', at), size.size());
    result.push_back(parse_bytes("-s", size.substr(at, comma - at)));
    at = comma + 1;
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

int PairOptions::iterations_or_default() const {
  if (iterations > 0) return iterations;
  return test == PairTest::kBandwidth && op == "write" ? 5000 : 1000;
}

int PairOptions::moderation_for(std::uint64_t bytes) const {
  int wanted = moderation;
  if (wanted == 0)
    wanted = test == PairTest::kLatency ? kLatencyModeration : bytes > kModeratedBytes ? 1 : 100;
  return std::min(wanted, depth);
}

int PairOptions::inline_or_default() const {
  if (gpu >= 0) return 0;
  return inline_bytes >= 0 ? inline_bytes : test == PairTest::kLatency ? 220 : 0;
}

void add_pair_flags(CLI::App& command, PairOptions& o) {
  const bool bandwidth = o.test == PairTest::kBandwidth;
  section(command, "Which ends");
  command.add_option("server", o.server,
                     "host of the server; without it this is the server, unless a launcher "
                     "(weft launch, mpirun) started several ranks");
  command
      .add_option("--op", o.op,
                  "write, send or read on RDMA devices; tcp, shm or ucx through weft's transports")
      ->check(CLI::IsMember({"write", "send", "read", "tcp", "shm", "ucx"}))
      ->capture_default_str();
  command.add_option("-d,--ib-dev", o.device,
                     "RDMA device, or interface for tcp (default: the first rail)");
  command.add_option("-i,--ib-port", o.device_port, "port of the device (default: first active)")
      ->check(CLI::Range(1, 255));
  command.add_option("-p,--port", o.tcp_port, "TCP port that the server listens on")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  section(command, "Messages");
  auto* size = command.add_option("-s,--size", o.size, "bytes of a message, or several: 64,4K,1M");
  command.add_flag("-a,--all", o.all_sizes, "all sizes from 2 to 8 MiB, by doubling")
      ->excludes(size);
  auto* iterations = command.add_option("-n,--iters", o.iterations, "messages of each size")
                         ->check(CLI::Range(5, 2000000000));
  command.add_option("-D,--duration", o.seconds, "seconds for each size, in place of -n")
      ->check(CLI::Range(0.1, 86400.0))
      ->excludes(iterations);
  section(command, "RDMA devices");
  command.add_option("-I,--inline_size", o.inline_bytes, "send messages up to this size inline")
      ->check(CLI::Range(0, 4096));
  command.add_flag("-e,--events", o.events, "sleep until the device signals a completion");
  command.add_option("-m,--mtu", o.mtu, "path MTU (default: what both ports have)")
      ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  command.add_option("-x,--gid-index", o.gid_index, "entry of the GID table (default: by kind)")
      ->check(CLI::Range(0, 255));
  command.add_option("-S,--sl", o.service_level, "service level")->check(CLI::Range(0, 15));
  command.add_option("--tclass", o.traffic_class, "traffic class: 4 * DSCP + ECN")
      ->check(CLI::Range(0, 255));
  command
      .add_option("-Q,--cq-mod", o.moderation,
                  "one completion for this many messages (default: 100, above 8 KiB: 1; lat: 32)")
      ->check(CLI::Range(1, 100000));
  if (bandwidth) {
    command.add_option("-q,--qp", o.qps, "queue pairs")->check(CLI::Range(1, 4096));
    command.add_option("-t,--tx-depth", o.depth, "messages under way of a queue pair")
        ->check(CLI::Range(1, 32768))
        ->capture_default_str();
    command.add_option("-l,--post_list", o.list, "messages handed to the device at once")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command.add_flag("-b,--bidirectional", o.both_ways, "both ends send");
    command.add_flag("--report_gbits", o.gbits, "rates in Gb/s, not in MB/s (2^20 bytes)");
  }
  command
      .add_option("--use_cuda", o.gpu,
                  "messages in the memory of this GPU, which the device reaches by dma-buf (the "
                  "GPU driver's open kernel modules) or through the module nvidia_peermem")
      ->check(CLI::NonNegativeNumber)
      ->expected(0, 1)
      ->default_str("0");
  section(command, "Output and pairs");
  command.add_flag("--check", o.validate, "compare what arrived with what was sent");
  command.add_flag("--ports", o.ports, "below each row, the counter changes of both ends' ports");
  if (bandwidth) {
    command
        .add_option("-w,--min-rate", o.min_rate,
                    "rate that each pair must reach at its best size, else exit code 2")
        ->check(CLI::PositiveNumber);
    command
        .add_option("-y,--min-msgrate", o.min_msgrate,
                    "the same for its message rate, in millions per second")
        ->check(CLI::PositiveNumber);
  }
  add_json_option(command, o.json, "weft.pair/1; the client writes it");
  command
      .add_option(
          "--pairs", o.pairs,
          "pairs of a launched job: all (in rounds), ring (neighbours), rail (same rail on two "
          "hosts), random; the pairs of a round run at the same time, RDMA on "
          "the client's rail at both ends")
      ->check(CLI::IsMember({"all", "ring", "rail", "random"}))
      ->capture_default_str();
  command.add_option("--seed", o.seed, "seed of --pairs random")->capture_default_str();
  command
      .add_option("--timeout-ms", o.timeout_ms,
                  "milliseconds without any progress that end the test")
      ->check(CLI::Range(1, 86400000))
      ->capture_default_str();
  command.add_option("--limit-s", o.limit_s, "seconds that one size may take")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
}

void check(const PairOptions& o) {
  (void)o.sizes();
  if (o.seconds > o.limit_s)
    throw Error(fmt::format("-D {}: longer than --limit-s {}", o.seconds, o.limit_s));
  if (o.list > o.depth)
    throw Error(fmt::format("-l {}: a post of more messages than may be under way (-t {})", o.list,
                            o.depth));
#ifndef WEFT_HAVE_VERBS
  if (o.verbs())
    throw Error(
        fmt::format("--op {}: missing capability: RDMA verbs, which this build was "
                    "configured without; install libibverbs-dev and build again",
                    o.op));
#endif
  if (o.verbs() && !verbs_available())
    throw Error(
        fmt::format("--op {}: missing capability: RDMA verbs: libibverbs cannot be loaded "
                    "(Debian: libibverbs1)",
                    o.op));
  if (!o.verbs()) {
    const auto refuse = [&o](bool given, const char* flag, const char* why) {
      if (given) throw Error(fmt::format("{} with --op {}: {}", flag, o.op, why));
    };
    refuse(o.qps > 1, "-q", "only RDMA devices have queue pairs");
    refuse(o.gpu >= 0, "--use_cuda", "takes memory of the host; use write, send or read");
    refuse(o.events, "-e", "is always polled; use write, send or read");
    const char* why = o.op == "shm" ? "shared memory does not support it; write, send and read do"
                      : o.op == "tcp"
                          ? "sockets do not support it; write, send and read do"
                          : "says how RDMA devices are used; write, send and read take it, and UCX "
                            "has variables of its own (`ucx_info -c`)";
    refuse(o.device_port > 0, "-i", why);
    refuse(o.mtu > 0, "-m", why);
    refuse(o.gid_index >= 0, "-x", why);
    refuse(o.service_level >= 0, "-S", why);
    refuse(o.traffic_class >= 0, "--tclass", why);
    refuse(o.inline_bytes >= 0, "-I", why);
    refuse(o.moderation > 0, "-Q", why);
    if (o.op == "ucx" && !ucx_available())
      throw Error(
          fmt::format("--op {}: missing capability: UCX, which this build was configured "
                      "without; install libucx-dev and build again",
                      o.op));
  }
  if (o.gpu >= 0) {
    if (!device()) throw Error(fmt::format("--use_cuda: missing capability: {}", missing_device()));
    if (o.gpu >= device()->count())
      throw Error(fmt::format("--use_cuda {}: there are {} GPUs here", o.gpu, device()->count()));
    if (o.test == PairTest::kLatency && o.op == "write")
      throw Error(
          "lat --op write --use_cuda: the processor would have to poll the GPU's memory; "
          "use --op send or read");
  }
  if (o.moderation > 0 && o.test == PairTest::kLatency && o.op == "read")
    throw Error("lat --op read -Q: every read is waited for, so each has a completion");
  if (o.events && o.test == PairTest::kLatency && o.op == "write")
    throw Error("lat --op write -e: an RDMA write does not notify the receiver; use --op send");
}

}  // namespace weft
