// The seam to memory that the processor does not touch: work that the engine gives out, and that
// ends later.
//
// A run with a Compute works on a copy of each round, in memory that links and the Compute reach.
// The Compute brings a round's input there and takes its result away. Where the processor does not
// touch that memory either, the Compute also reduces and copies there. The engine gives out the
// work and goes on when the work has ended; it does not know who does the work, nor where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

// One piece of work. The engine and the owner of the Compute pass it to each other whole.
struct Work {
  enum class Kind : std::uint8_t {
    kBring,   // `slices` of the user's input to the round's copy, then `sums`
    kTake,    // `sums`, then `slices` of the round's copy to the user's output
    kReduce,  // `sums`
    kLand,    // nothing: a message is there, and may be sent on or read when this has ended
  };
  // Elements of a block (or of a message, which is block 0), and their place in the copy.
  struct Slice {
    std::byte* at;
    std::size_t block, first, count;
  };
  // The reduction of these sources in this order; of one source: a copy.
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
  // on_device: only the Compute touches memory(), with links that take such memory.
  // round_bytes: the most bytes of a block (or of the message) in a round; the same on all ranks.
  Compute(bool on_device, std::size_t round_bytes)
      : on_device_(on_device), round_bytes_(round_bytes) {}
  virtual ~Compute() = default;
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // Returns memory for all rounds in flight, until the next call. Throws Error.
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

  // ---- for the owner, who does the work and then makes the run progress. One thread at a time may
  // use both sides.
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

// The scratch of a run with a Compute is bounded by this, the copies of its rounds included, unless
// one round needs more.
inline constexpr std::size_t kComputeScratchMax = std::size_t{32} << 20;
// A run with a Compute has up to so many rounds in flight: they are brought, reduced and taken away
// side by side.
inline constexpr int kComputeRounds = 4;
// All messages that a rank has posted ahead take about so much of the scratch.
inline constexpr std::size_t kComputeAhead = std::size_t{8} << 20;

}  // namespace weft
