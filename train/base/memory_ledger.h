// MemoryLedger: the bytes of one rank's tensors by use, now and at their peak.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace weft::train {

// Categories of memory, as in docs/training/what-travels.md.
enum class Use {
  kWeights,
  kWeightedSums,     // z: inputs of GELU, softmax and attention
  kActivations,      // y: outputs of layers, saved for the backward pass
  kErrors,           // gradients of activations
  kGradients,        // gradients of this rank's samples
  kRemoteGradients,  // sums received from other ranks
  kFirstMoment,      // Adam's m, or SGD's momentum: next change of a weight (delta w)
  kSecondMoment,     // Adam's v, which scales the learning rate of each weight
  kMasterWeights,    // fp32 weights; the 16-bit weights are rounded copies of them
  kWorkspace         // scratch memory of an operator
};
inline constexpr int kUses = 10;
inline const char* name(Use use) {
  constexpr const char* kNames[] = {
      "weights",          "weighted_sums", "activations",   "errors",         "gradients",
      "remote_gradients", "first_moment",  "second_moment", "master_weights", "workspace"};
  return kNames[static_cast<int>(use)];
}

// One ledger per thread (of_this_rank()), since a rank may be a thread.
struct MemoryLedger {
  std::array<std::size_t, kUses> now{}, peak{};
  std::size_t total = 0, peak_total = 0;
  std::size_t copied = 0;  // bytes that copy() has moved (memory.h)

  void add(Use use, std::size_t bytes) {
    const auto u = static_cast<std::size_t>(use);
    now[u] += bytes;
    peak[u] = std::max(peak[u], now[u]);
    total += bytes;
    peak_total = std::max(peak_total, total);
  }
  void remove(Use use, std::size_t bytes) {
    now[static_cast<std::size_t>(use)] -= bytes;
    total -= bytes;
  }
  static MemoryLedger& of_this_rank() {
    thread_local MemoryLedger ledger;
    return ledger;
  }
};

}  // namespace weft::train
