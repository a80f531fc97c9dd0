// Prepares, runs and checks one collective on given memory, for perf (in a loop) and validate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/types.h"
#include "perf/collective/device_memory.h"
#include "perf/collective/payload.h"

namespace weft {

// Page-aligned, touched memory from malloc or weft::alloc, as users allocate it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::size_t bytes, bool from_weft);
  unsigned char* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }

 private:
  std::unique_ptr<unsigned char[], void (*)(void*)> data_{nullptr, nullptr};
  std::size_t bytes_ = 0;
};

struct Case {
  Collective collective = Collective::kAllReduce;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  Rank root = 0;
  Codec codec = Codec::kNone;  // the communicator's codec
  bool in_place = false;
  std::size_t count = 0;    // elements, as passed to the Communicator
  std::uint64_t bytes = 0;  // size of the whole buffer, for bandwidth
  std::size_t shift = 0;    // offset of both buffers from their pages, in elements
};

// Returns the case with the largest whole buffer of at most `bytes`, but at least one element per
// rank. Buffers made of blocks are divided among the ranks.
Case with_bytes(Case like, std::uint64_t bytes, int nranks);

// The two buffers of a rank; in place, only one exists. On a GPU, each buffer mirrors GPU memory:
// payloads are made and compared in the buffer, and collectives use the GPU memory.
struct Memory {
  static constexpr std::size_t kGuard = 256;  // bytes after the result that must stay unchanged
  Memory(std::uint64_t bytes, bool in_place, bool from_weft);
  // Creates buffers that are mirrored on this GPU.
  static std::unique_ptr<Memory> on_gpu(int gpu, std::uint64_t bytes, bool in_place);
  Buffer in, out;
  std::unique_ptr<DeviceMirror> in_on_gpu, out_on_gpu;
};

// One case on this rank. The Communicator and Memory must outlive the Exercise.
class Exercise {
 public:
  Exercise(Communicator& comm, const Case& what, Memory& memory);

  void prepare();          // fills the input with payload and the output with poison
  void prepare_to_time();  // in place only: zeroes the buffer, so that repeated sums stay zero
  Status run();
  // Call after prepare() and one run() (out of place: any number of runs). Reports wrong elements,
  // writes beyond the result, and modified input.
  Mismatch check() const;

 private:
  void upload();
  // Returns the GPU address of `p`; `p` itself if the case runs on the host.
  unsigned char* on_gpu(unsigned char* p) const;
  bool has_input() const;
  Rank previous() const { return (comm_.rank() + comm_.size() - 1) % comm_.size(); }
  Communicator& comm_;
  Memory& memory_;
  Case case_;
  Payload payload_;
  std::size_t input_count_ = 0, output_count_ = 0;
  unsigned char *in_ = nullptr, *out_ = nullptr, *guard_ = nullptr;
};

// The sequence of timed runs.
struct Rhythm {
  int runs = 1;  // runs that are timed together, back to back
  // true: a barrier before each group of `runs`; false: only before the first group.
  bool barriers = true;
};

// Returns the microseconds of the runs, by rank; runs that are timed together are one entry, their
// mean. Calls `shown` at intervals with the number of finished runs. Collective over `comm`, which
// must be the whole job. Throws JobFailed.
std::vector<std::vector<double>> time_runs(Job& job, Communicator& comm, Exercise& exercise,
                                           int runs, Rhythm rhythm = {},
                                           const std::function<void(int)>& shown = {});

}  // namespace weft
