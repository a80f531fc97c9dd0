// The settings of the verbs transport, each with a default that works.
//
// The settings are read without a device: each value is checked against the width of its field
// only. WEFT_RAILS (topo/discover.h) chooses the devices and their order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct VerbsSettings {
  // --- packets -----------------------------------------------------------------------
  int port = 0;           // WEFT_VERBS_PORT; 0: the first active one
  int gid_index = -1;     // WEFT_VERBS_GID_INDEX; -1: by kind, see verbs/gid.h
  int pkey = 0;           // WEFT_VERBS_PKEY: a partition, "0x8001"; 0: the first, see verbs/gid.h
  int mtu = 0;            // WEFT_VERBS_MTU: 256 ... 4096; 0: the smaller of the ports' at both ends
  int traffic_class = 0;  // WEFT_VERBS_TRAFFIC_CLASS, or WEFT_VERBS_DSCP: its upper 6 bits
  int service_level = 0;  // WEFT_VERBS_SL: InfiniBand's, or the VLAN priority on Ethernet
  // --- packet loss ---------------------------------------------------------------------- Not 7:
  // Soft-RoCE (rdma_rxe of Linux 6.1) then retries forever, and a dead peer is never detected.
  int retry_count = 6;  // WEFT_VERBS_RETRY_COUNT: 0 ... 7 retries, then status 12
  // WEFT_VERBS_TIMEOUT: 4.096 us * 2^timeout before each; 0: timeout_for()
  int timeout = 0;
  int rnr_retry = 7;       // WEFT_VERBS_RNR_RETRY: 7: forever
  int min_rnr_timer = 12;  // WEFT_VERBS_MIN_RNR_TIMER: code of a time; 12 is 0.64 ms
  // --- queues and slots ----------------------------------------------------------------
  int qps = 1;           // WEFT_VERBS_QPS per peer and rail, each with its own flow label
  int send_depth = 256;  // WEFT_VERBS_SEND_DEPTH: work requests of a queue pair
  int connections = 64;  // WEFT_VERBS_CONNECTIONS: connected peers of a rail at a time
  int slots = 32;        // WEFT_VERBS_SLOTS that a queue pair's peer may fill
  // WEFT_VERBS_SLOT_BYTES: longer messages are sent zero-copy. 0: slot_bytes_for() the port's rate
  std::size_t slot_bytes = 0;
  int windows = 16;  // WEFT_VERBS_WINDOWS: concurrent zero-copy receives (CTS) per peer
  std::size_t unexpected_bytes = std::size_t{1} << 30;  // unexpected_limit()
  int inline_bytes = 220;  // WEFT_VERBS_INLINE_BYTES requested; the device may grant less
  // --- features of newer drivers; skipped if the device refuses them ---------------
  bool one_thread = true;  // WEFT_VERBS_ONE_THREAD: 0 or 1; a thread domain, queues without locks
  bool extended = true;    // WEFT_VERBS_WR: 0 or 1; requests use ibv_wr_*
  bool ece = true;         // WEFT_VERBS_ECE: 0 or 1; options that both ends support
  // --- registered memory --------------------------------------------------------------------
  std::size_t cache_entries = 1024;                // WEFT_VERBS_CACHE_ENTRIES
  std::size_t cache_bytes = std::size_t{1} << 36;  // WEFT_VERBS_CACHE_BYTES
  bool huge_pages = true;        // WEFT_VERBS_HUGE_PAGES: 0 or 1; for slots, if the kernel has any
  bool relaxed_ordering = true;  // WEFT_VERBS_RELAXED_ORDERING: 0 or 1; if the device has it
};

// Returns the timeout of queue pairs. If another rail can take over, a dead link must be detected
// soon: 268 ms, 1.9 s with all retries. A single rail cannot fail over: 2.1 s, 15 s with all
// retries, survive a link that retrains, or a sweep of the subnet manager.
inline constexpr int timeout_for(bool replaceable) { return replaceable ? 16 : 19; }

// Returns the slot size above which zero copy, with its RTS and CTS, beats a copy through a slot.
// Up to 10 Gb/s (and on Soft-RoCE, whose packets are made by the CPU) a copy is cheap compared to
// the wire, and RTS and CTS wait behind the data that fills the port: on Soft-RoCE at 160 Mb/s, an
// all-reduce of 8 MiB is 1.8 times as fast with slots that hold a whole 64 KiB slice. On a fast
// port a copy is slower than the wire, and RTS and CTS take a few microseconds. A port of unknown
// rate (0) is assumed to be new and fast.
inline constexpr std::size_t slot_bytes_for(double rate_gbps) {
  return rate_gbps > 0 && rate_gbps <= 10 ? (64u << 10) + 64 : 16u << 10;
}

// Reads the environment. Throws an Error that names the variable, its value and the range.
VerbsSettings verbs_settings();

}  // namespace weft
