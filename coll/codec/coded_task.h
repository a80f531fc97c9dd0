// CodedTask: a compressed collective. It quantizes the values, transfers the blocks with
// uncompressed collectives of bytes on companion communicators, and reduces the results in fp32.
//
// A reduction sends each value's blocks to the rank that reduces them; an all_reduce quantizes the
// sums again and gathers them. If all hosts have the same number of ranks, a host's ranks first
// reduce their values in fp32, so that only blocks of the host's sums cross the rails.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "coll/runtime/core.h"

namespace weft {

class CodedTask;

// State that the compressed calls of a communicator share.
struct CodedCalls {
  // From GroupState::companions: the communicators of all ranks, of this host's ranks, and of the
  // ranks with this rank's local index on all hosts (null: hosts are ignored, and `across` contains
  // all ranks).
  GroupState *all = nullptr, *host = nullptr, *rail = nullptr;
  std::vector<Rank> place, across;  // ranks of the communicator in `host` and in `rail`
  // Only the first task runs: ranks must start the companions' collectives in the same order.
  std::deque<CodedTask*> queue;
  std::vector<std::byte> sent, received;
  std::vector<float> sums, own;
};

// Returns kInvalidArgument if a compressed call does not support these arguments. on_device: a
// buffer is in device memory.
Status check_coded(Collective c, const Call& call, bool on_device);

class CodedTask final : public Task {
 public:
  // Starts the collective with this number. The arguments have been checked, and there are several
  // ranks.
  static Task* begin(GroupState& g, const PreparedRef& prepared, std::uint64_t number,
                     const Call& call) WEFT_REQUIRES(core_held);

  void complete(const Completion&) override {}  // only its parts have transfers
  Step progress() override WEFT_REQUIRES(core_held);
  void done() override WEFT_REQUIRES(core_held);
  void cancel() override WEFT_REQUIRES(core_held) { calls_.queue.clear(); }
  void release() override WEFT_REQUIRES(core_held);
  Rank waiting_for() const override;
  bool survey(Recorder::Stalled&) const override { return false; }  // its part reports more detail
  Status failure() const override WEFT_REQUIRES(core_held) { return failure_; }

 private:
  CodedTask(GroupState& g, const PreparedRef& of, std::uint64_t numbered, const Call& made)
      WEFT_REQUIRES(core_held);
  Collective collective() const { return prepared->what.collective; }
  bool next() WEFT_REQUIRES(core_held);  // starts the next part; false: all parts are done
  void run(GroupState& companion, Collective c, const void* in, void* out, std::size_t count,
           DType type, std::span<const std::size_t> counts = {}) WEFT_REQUIRES(core_held);
  void reduce_host() WEFT_REQUIRES(core_held);
  void encode_blocks() WEFT_REQUIRES(core_held);
  void sum() WEFT_REQUIRES(core_held);
  void decode_all();
  std::size_t begin_of(std::size_t across, std::size_t place) const;
  std::size_t length_at(std::size_t begin) const;

  CodedCalls& calls_;
  const std::size_t n_, hosts_, places_;
  const std::size_t part_count_, part_bytes_;  // the size that one rank reduces, or of its block
  std::vector<std::size_t> counts_;            // for reduce_host()
  int phase_ = 0;
  Task* part_ = nullptr;
  Status failure_;
};

}  // namespace weft
