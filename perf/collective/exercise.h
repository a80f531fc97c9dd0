// One collective on given memory: prepare, run, compare. Used by perf (in a loop) and validate.
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

// Page-aligned, touched, of the kind users have: plain malloc memory, or weft::alloc's.
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
  bool in_place = false;
  std::size_t count = 0;    // elements, as the Communicator's call takes them
  std::uint64_t bytes = 0;  // the whole buffer: what bandwidth is reckoned from
};

// The case whose whole buffer is nearest to `bytes` from below, and at least one element per rank.
// Where the buffer is made of blocks it is divided among the ranks.
Case with_bytes(Case like, std::uint64_t bytes, int nranks);

// The two buffers of a rank. In place, only one of them is there.
// On a GPU they are mirrors: payloads are made and compared there, and the calls take the GPU's.
struct Memory {
  static constexpr std::size_t kGuard = 256;  // bytes behind the result that must stay untouched
  Memory(std::uint64_t bytes, bool in_place, bool from_weft);
  // On this GPU.
  static std::unique_ptr<Memory> on_gpu(int gpu, std::uint64_t bytes, bool in_place);
  Buffer in, out;
  std::unique_ptr<DeviceMirror> in_on_gpu, out_on_gpu;
};

// A case on this rank. The Communicator and Memory must outlive it.
class Exercise {
 public:
  Exercise(Communicator& comm, const Case& what, Memory& memory);

  void prepare();          // payload in, poison out
  void prepare_to_time();  // in place only: zeros, so that repeated sums stay zero
  Status run();
  // After prepare() and one run() (out of place: any number): elements that are not what they
  // must be, writes behind the result, changes of the input.
  Mismatch check() const;

 private:
  void upload();
  unsigned char* on_gpu(unsigned char* p) const;  // p itself in host memory
  bool has_input() const;
  Rank previous() const { return (comm_.rank() + comm_.size() - 1) % comm_.size(); }
  Communicator& comm_;
  Memory& memory_;
  Case case_;
  Payload payload_;
  std::size_t input_count_ = 0, output_count_ = 0;
  unsigned char *in_ = nullptr, *out_ = nullptr, *guard_ = nullptr;
};

// The time of each of so many runs in microseconds, that of its slowest rank. A barrier comes
// before each; with batch > 1, before each batch, whose mean is one entry. shown: called now and
// then with the number of runs done. Every rank of `comm`, which is the whole job, calls it. Throws
// JobFailed.
std::vector<double> time_runs(Job& job, Communicator& comm, Exercise& exercise, int runs, int batch,
                              const std::function<void(int)>& shown = {});

}  // namespace weft
