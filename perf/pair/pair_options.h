// The options of `weft perf bw` and `weft perf lat`: perftest's flags, and additional ones.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

enum class PairTest { kBandwidth, kLatency };

struct PairOptions {
  PairTest test = PairTest::kBandwidth;
  std::string op = "write";  // write, send, read (verbs); tcp, shm, ucx (transports)
  std::string server;        // empty: this process is the server, or a rank of a launched job
  std::string device;        // empty: the first rail
  int device_port = 0;       // 0: the first active port
  int tcp_port = 18515;
  std::string size;  // bytes per message; empty: 64K for bandwidth, 2 for latency
  bool all_sizes = false;
  int iterations = 0;  // 0: 5000 for the bandwidth of writes, 1000 for other tests
  double seconds = 0;  // > 0: duration of a test, instead of iterations
  int qps = 1;
  int depth = 128;  // outstanding messages per queue pair
  int list = 1;     // requests per post
  // Messages per completion; 0: 100 (lat: 32) up to 8 KiB, 1 for larger messages.
  int moderation = 0;
  int inline_bytes = -1;  // -1: 220 for latency, 0 for bandwidth
  bool events = false;
  bool both_ways = false;
  int mtu = 0;
  int gid_index = -1;
  int service_level = -1;  // -1: from WEFT_VERBS_*; likewise below
  int traffic_class = -1;
  bool gbits = false;
  int gpu = -1;  // >= 0: messages in the memory of this GPU
  std::string json;
  bool validate = false;
  bool ports = false;                    // print changes of port counters below each row
  double min_rate = 0, min_msgrate = 0;  // limits in the table's unit, and in Mpps; 0: no limit
  std::string pairs = "all";
  std::uint64_t seed = 1;
  int timeout_ms = 30000;  // limit of the time without progress
  int limit_s = 300;       // limit of the time per size
  // Not a flag; flow label of the first queue pair; 0: chosen by the device.
  std::uint32_t flow_label = 0;
  // Not a flag: flips one bit of messages of at least this many bytes (WEFT_FAULT).
  std::size_t damage_from = SIZE_MAX;

  bool verbs() const { return op == "write" || op == "send" || op == "read"; }
  std::vector<std::uint64_t> sizes() const;  // ascending; throws Error
  double timeout_s() const { return timeout_ms / 1e3; }
  int iterations_or_default() const;
  int moderation_for(std::uint64_t bytes) const;
  int inline_or_default() const;
};

const char* name(PairTest test);

void add_pair_flags(CLI::App& command, PairOptions& options);
// Throws Error naming the flag if flags exclude each other, do not apply to the operation, or need
// a library that this build lacks.
void check(const PairOptions& options);

}  // namespace weft
