// The settings of the verbs transport, each with a default that works.
//
// The settings do not know devices: each value is checked against the width of its field only.
// WEFT_RAILS (topo/discover.h) chooses the devices and their order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct VerbsSettings {
  // --- how packets go -----------------------------------------------------------------------
  int port = 0;           // WEFT_VERBS_PORT; 0: the first that is active
  int gid_index = -1;     // WEFT_VERBS_GID_INDEX; -1: by kind, see verbs/gid.h
  int pkey = 0;           // WEFT_VERBS_PKEY: a partition, "0x8001"; 0: the first, see verbs/gid.h
  int mtu = 0;            // WEFT_VERBS_MTU: 256 ... 4096; 0: what both ends' ports have
  int traffic_class = 0;  // WEFT_VERBS_TRAFFIC_CLASS, or WEFT_VERBS_DSCP: its upper 6 bits
  int service_level = 0;  // WEFT_VERBS_SL: InfiniBand's, or the VLAN priority on Ethernet
  // --- how loss is met ----------------------------------------------------------------------
  // Not 7: Soft-RoCE (rdma_rxe of Linux 6.1) then repeats for ever, and no peer is ever dead.
  int retry_count = 6;  // WEFT_VERBS_RETRY_COUNT: 0 ... 7 repetitions, then status 12
  // WEFT_VERBS_TIMEOUT: 4.096 us * 2^timeout before each; 0: timeout_for()
  int timeout = 0;
  int rnr_retry = 7;       // WEFT_VERBS_RNR_RETRY: 7 is for ever
  int min_rnr_timer = 12;  // WEFT_VERBS_MIN_RNR_TIMER: code of a time; 12 is 0.64 ms
  // --- how much is under way ----------------------------------------------------------------
  int qps = 1;           // WEFT_VERBS_QPS per peer and rail, each with a flow label of its own
  int send_depth = 256;  // WEFT_VERBS_SEND_DEPTH: work requests of a queue pair
  int connections = 64;  // WEFT_VERBS_CONNECTIONS: peers of a rail that are connected at once
  int slots = 32;        // WEFT_VERBS_SLOTS that a queue pair's peer may fill
  // WEFT_VERBS_SLOT_BYTES: longer messages go by zero copy. 0: slot_bytes_for() the port's rate
  std::size_t slot_bytes = 0;
  int windows = 16;  // WEFT_VERBS_WINDOWS: zero-copy receives that a peer has a CTS for at once
  std::size_t unexpected_bytes = std::size_t{1} << 30;  // unexpected_limit()
  int inline_bytes = 220;  // WEFT_VERBS_INLINE_BYTES asked for; the device may give less
  // --- what newer drivers offer; each is left out where the device refuses it ---------------
  bool one_thread = true;  // WEFT_VERBS_ONE_THREAD: 0 or 1; a thread domain, queues without locks
  bool extended = true;    // WEFT_VERBS_WR: 0 or 1; requests by ibv_wr_*
  bool ece = true;         // WEFT_VERBS_ECE: 0 or 1; options that both ends' devices have
  // --- registered memory --------------------------------------------------------------------
  std::size_t cache_entries = 1024;                // WEFT_VERBS_CACHE_ENTRIES
  std::size_t cache_bytes = std::size_t{1} << 36;  // WEFT_VERBS_CACHE_BYTES
  bool huge_pages = true;  // WEFT_VERBS_HUGE_PAGES: 0 or 1; for slots, where the kernel has any
  bool relaxed_ordering = true;  // WEFT_VERBS_RELAXED_ORDERING: 0 or 1; where the device has it
};

// Returns the timeout of queue pairs. Where another rail can take over, a dead link is to be known
// soon: 268 ms, 1.9 s with all repetitions. A single rail has nothing to fall back on: 2.1 s, 15 s
// with all repetitions, rides out a link that trains anew, or a subnet manager that sweeps.
inline constexpr int timeout_for(bool replaceable) { return replaceable ? 16 : 19; }

// Returns the slot size above which zero copy, with its RTS and CTS, beats a copy through a slot.
// Up to 10 Gb/s (and on Soft-RoCE, whose packets a processor makes) a copy is cheap beside the
// wire, and RTS and CTS wait behind the data that fills the port: on Soft-RoCE at 160 Mb/s, an
// all-reduce of 8 MiB is 1.8 times as fast with slots that hold a whole 64 KiB slice. On a fast
// port a copy is slower than the wire, and RTS and CTS take a few microseconds. A port of unknown
// rate (0) is a new one, and fast.
inline constexpr std::size_t slot_bytes_for(double rate_gbps) {
  return rate_gbps > 0 && rate_gbps <= 10 ? (64u << 10) + 64 : 16u << 10;
}

// Reads the environment. Throws an Error that names the variable, its value and the range.
VerbsSettings verbs_settings();

}  // namespace weft
