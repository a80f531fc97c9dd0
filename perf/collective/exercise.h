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

// Page-aligned, touched memory of the kind that users have: from malloc, or from weft::alloc.
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
  Codec codec = Codec::kNone;  // that the communicator has
  bool in_place = false;
  std::size_t count = 0;    // elements, as the Communicator's call takes them
  std::uint64_t bytes = 0;  // of the whole buffer, from which bandwidth is computed
  std::size_t shift = 0;    // elements by which both buffers begin behind their pages
};

// Returns the case with the largest whole buffer of at most `bytes`, but at least one element per
// rank. A buffer made of blocks is divided among the ranks.
Case with_bytes(Case like, std::uint64_t bytes, int nranks);

// The two buffers of a rank; in place, only one of them exists. On a GPU, each buffer mirrors GPU
// memory: payloads are made and compared in the buffer, and the calls take the GPU memory.
struct Memory {
  static constexpr std::size_t kGuard = 256;  // bytes behind the result that must stay untouched
  Memory(std::uint64_t bytes, bool in_place, bool from_weft);
  // Makes the buffers with mirrors on this GPU.
  static std::unique_ptr<Memory> on_gpu(int gpu, std::uint64_t bytes, bool in_place);
  Buffer in, out;
  std::unique_ptr<DeviceMirror> in_on_gpu, out_on_gpu;
};

// One case on this rank. The Communicator and Memory must outlive the Exercise.
class Exercise {
 public:
  Exercise(Communicator& comm, const Case& what, Memory& memory);

  void prepare();          // fills the input with payload, the output with poison
  void prepare_to_time();  // in place only: fills with zeros, so that repeated sums stay zero
  Status run();
  // Call it after prepare() and one run() (out of place: any number of runs). Reports wrong
  // elements, writes behind the result, and changes of the input.
  Mismatch check() const;

 private:
  void upload();
  unsigned char* on_gpu(unsigned char* p) const;  // `p` itself where the case runs on the host
  bool has_input() const;
  Rank previous() const { return (comm_.rank() + comm_.size() - 1) % comm_.size(); }
  Communicator& comm_;
  Memory& memory_;
  Case case_;
  Payload payload_;
  std::size_t input_count_ = 0, output_count_ = 0;
  unsigned char *in_ = nullptr, *out_ = nullptr, *guard_ = nullptr;
};

// How runs follow each other.
struct Rhythm {
  int runs = 1;          // that are timed together, one directly after the other
  bool barriers = true;  // before each of these, else only before the first
};

// Returns, for every rank of the job, the microseconds of its runs; those that are timed together
// are one entry, their mean. Calls `shown` now and then with the number of finished runs.
// Collective over `comm`, which is the whole job. Throws JobFailed.
std::vector<std::vector<double>> time_runs(Job& job, Communicator& comm, Exercise& exercise,
                                           int runs, Rhythm rhythm = {},
                                           const std::function<void(int)>& shown = {});

}  // namespace weft
