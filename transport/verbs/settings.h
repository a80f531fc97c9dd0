// What a cluster may want to choose about RDMA verbs, each with a default that works.
//
// Knows nothing about devices: values are checked against their field's width only. The devices
// themselves and their order are the rails: WEFT_RAILS (topo/discover.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct VerbsSettings {
  // --- how packets travel -------------------------------------------------------------------
  int port = 0;           // WEFT_VERBS_PORT; 0: the first that is active
  int gid_index = -1;     // WEFT_VERBS_GID_INDEX; -1: by kind, see verbs/gid.h
  int pkey = 0;           // WEFT_VERBS_PKEY: a partition, "0x8001"; 0: the first, see verbs/gid.h
  int mtu = 0;            // WEFT_VERBS_MTU: 256 ... 4096; 0: what both ends' ports have
  int traffic_class = 0;  // WEFT_VERBS_TRAFFIC_CLASS, or WEFT_VERBS_DSCP: its upper 6 bits
  int service_level = 0;  // WEFT_VERBS_SL: InfiniBand's, or the VLAN priority on Ethernet
  // --- how loss is met ----------------------------------------------------------------------
  // Not 7: Soft-RoCE (rdma_rxe of Linux 6.1) then repeats for ever, and no peer is ever dead.
  int retry_count = 6;     // WEFT_VERBS_RETRY_COUNT: 0 ... 7 repetitions, then status 12
  int timeout = 16;        // WEFT_VERBS_TIMEOUT: 4.096 us * 2^timeout before each; 268 ms
  int rnr_retry = 7;       // WEFT_VERBS_RNR_RETRY: 7 is for ever
  int min_rnr_timer = 12;  // WEFT_VERBS_MIN_RNR_TIMER: code of a time; 12 is 0.64 ms
  // --- how much is under way ----------------------------------------------------------------
  int qps = 1;           // WEFT_VERBS_QPS per peer and rail, each with a flow label of its own
  int send_depth = 256;  // WEFT_VERBS_SEND_DEPTH: work requests of a queue pair
  int slots = 32;        // WEFT_VERBS_SLOTS that a queue pair's peer may fill
  // WEFT_VERBS_SLOT_BYTES: longer messages go by zero copy. 0: slot_bytes_for() the port's rate
  std::size_t slot_bytes = 0;
  int windows = 16;  // WEFT_VERBS_WINDOWS: zero-copy receives granted to a peer at once
  std::size_t unclaimed_bytes = std::size_t{1} << 30;  // unclaimed_limit()
  int inline_bytes = 220;  // WEFT_VERBS_INLINE_BYTES asked for; the device may give less
  // --- registered memory --------------------------------------------------------------------
  std::size_t cache_entries = 1024;                // WEFT_VERBS_CACHE_ENTRIES
  std::size_t cache_bytes = std::size_t{1} << 36;  // WEFT_VERBS_CACHE_BYTES
  bool relaxed_ordering = true;  // WEFT_VERBS_RELAXED_ORDERING: 0 or 1; where the device has it
};

// Where copying through a slot takes as long as the announcement and the grant that zero copy
// costs. Up to 10 Gb/s (and for Soft-RoCE, whose packets a processor makes) copies are cheap beside
// the wire, and the two messages wait behind the data that fills the port: measured on Soft-RoCE at
// 160 Mb/s, an all-reduce of 8 MiB is 1.8 times as fast in slots of a whole 64 KiB slice. On a fast
// port a copy is slower than the wire, and the messages take a few microseconds.
inline constexpr std::size_t slot_bytes_for(double rate_gbps) {
  return rate_gbps <= 10 ? (64u << 10) + 64 : 16u << 10;
}

// Throws Error naming the variable, its value and the range.
VerbsSettings verbs_settings();

}  // namespace weft
