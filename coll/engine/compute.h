// The interface to memory that the processor does not access: work that the engine issues, and that
// completes later.
//
// A run with a Compute works on a copy of each round, in memory that links and the Compute can
// access. The Compute loads a round's input there and stores its result. If the processor cannot
// access that memory, the Compute also reduces and copies there. The engine issues work and
// continues when it has completed, independent of what does the work, or where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

// One piece of work, moved between the engine and the owner of the Compute.
struct Work {
  enum class Kind : std::uint8_t {
    kBring,   // copies `slices` of the user's input to the round's copy, then `sums`
    kTake,    // `sums`, then copies `slices` of the round's copy to the user's output
    kReduce,  // `sums`
    kLand,    // no work: when it ends, an arrived message may be forwarded or read
  };
  // Elements of a block (or of a message, which is block 0), and their address in the copy.
  struct Slice {
    std::byte* at;
    std::size_t block, first, count;
  };
  // The reduction of these sources in this order; with one source, a copy.
  struct Sum {
    std::byte* to;
    std::vector<const void*> from;
    std::size_t count;  // elements
  };
  Kind kind = Kind::kBring;
  std::uint32_t lane = 0, node = 0;
  std::vector<Slice> slices = {};
  std::vector<Sum> sums = {};
};

class Compute {
 public:
  // on_device: only the Compute accesses memory(), with links that accept such memory. round_bytes:
  // most bytes of a block (or of the message) in a round; the same on all ranks.
  Compute(bool on_device, std::size_t round_bytes)
      : on_device_(on_device), round_bytes_(round_bytes) {}
  virtual ~Compute() = default;
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // Returns memory for all rounds in flight, valid until the next call. Throws Error.
  virtual std::byte* memory(std::size_t bytes) = 0;
  bool on_device() const { return on_device_; }
  std::size_t round_bytes() const { return round_bytes_; }

  // ---- for the engine
  void give(Work&& work) {
    ++open_;
    given_.push_back(std::move(work));
  }
  std::vector<Work> take_ended() { return std::exchange(ended_, {}); }
  bool busy() const { return open_ != 0; }  // some work has not ended

  // ---- for the owner, which does the work and then calls the run's progress(). Only one thread at
  // a time may use either side.
  std::vector<Work> take_given() { return std::exchange(given_, {}); }
  void end(Work&& work) {
    --open_;
    ended_.push_back(std::move(work));
  }

 private:
  const bool on_device_;
  const std::size_t round_bytes_;
  std::size_t open_ = 0;
  std::vector<Work> given_, ended_;
};

// Limits the scratch of a run with a Compute, including the copies of its rounds, unless one round
// needs more.
inline constexpr std::size_t kComputeScratchMax = std::size_t{32} << 20;
// Rounds in flight of a run with a Compute, so that loading, reducing and storing overlap.
inline constexpr int kComputeRounds = 4;
// All messages that a rank has posted ahead take about this much of the scratch.
inline constexpr std::size_t kComputeAhead = std::size_t{8} << 20;

}  // namespace weft
