// A trace records every operation of one rank, and its transfers on every link with their bytes,
// for users and for Perfetto. It stays in memory until write() converts it to Chrome trace events
// (JSON).
//
// A trace is created only if WEFT_TRACE is set, and wraps the transports: otherwise it has no cost.
// Not thread-safe: used under the lock of the rank's Core.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coll/call_descriptor.h"
#include "topo/base/status.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

class Trace {
 public:
  // path: the file of this rank; if empty, the trace writes no file, and only takes part in
  // align().
  Trace(std::string path, Rank rank, std::string host, std::vector<std::string> links);

  // Returns a transport that traces the transfers of `inner`.
  std::unique_ptr<Transport> wrap(std::unique_ptr<Transport> inner, int link);

  void begin(std::uint64_t number, const CallDescriptor& call);
  void end(std::uint64_t number, bool ok);
  // Associates the transfers with this id with the operation with this number.
  void name_transfers(std::uint32_t id_high, std::uint64_t number) { number_of_[id_high] = number; }
  void forget_transfers(std::uint32_t id_high) { number_of_.erase(id_high); }

  // Records the communicator's name in the program, and its world ranks: calls in the file identify
  // a communicator only by its number.
  void name_communicator(std::uint32_t id, std::string name, std::vector<Rank> ranks) {
    communicators_.push_back({id, std::move(name), std::move(ranks)});
  }

  // Measures the offset between this rank's clock and rank 0's, with messages of the control plane.
  // All ranks call it at the same time; each call narrows the bounds of the offset.
  void align(Job& job);
  // Sets the offset to 0 if 0 is within the bounds: ranks of one machine share a clock, except in a
  // time namespace.
  void aligned() {
    if (offset_low_ <= 0 && offset_high_ >= 0) offset_low_ = offset_high_ = 0;
  }

  void write() const noexcept;  // logs a failure

 private:
  class Traced;
  struct Event {
    std::uint64_t begin_ns, end_ns, bytes, number;
    std::uint32_t round;
    Rank peer;
    std::int16_t link;
    Transfer::Kind kind;
    bool ok;
  };
  struct Call {
    CallDescriptor what;
    std::uint64_t number, begin_ns, end_ns;
    bool ok;
  };
  struct Named {
    std::uint32_t id;
    std::string name;
    std::vector<Rank> ranks;
  };
  void add(const Event& event);
  void write(std::FILE* file) const;  // throws std::system_error

  std::string path_, host_;
  Rank rank_;
  std::vector<std::string> links_;
  std::vector<Event> events_;
  std::vector<Call> calls_;
  std::vector<Named> communicators_;
  std::unordered_map<std::uint64_t, std::size_t> open_;  // index of the open calls, by number
  std::unordered_map<std::uint32_t, std::uint64_t> number_of_;
  std::uint64_t dropped_ = 0;
  std::int64_t offset_low_ = INT64_MIN / 4, offset_high_ = INT64_MAX / 4;  // ns
  std::size_t job_ranks_ = 0;
  std::uint64_t job_ = 0;  // rank 0's clock at the first alignment, which identifies the job
};

// "trace.json" of rank 3: "trace.rank3.json"
std::string file_of_rank(const std::string& path, Rank rank);
// The file of the World that the `times`-th shrink() created, in which ranks have new numbers;
// earlier files contain the events before the failure. "trace.json": "trace.shrunk1.json"
std::string file_after_shrink(const std::string& path, int times);

}  // namespace weft
