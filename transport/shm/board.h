// Boards in the shared memory of a machine's ranks, and the allocation of their parts.
//
// Every rank gives each board one free part of its own arena and sends the part's number to the
// other members. A part becomes free when all members have left its board: until then, a slow
// member may read the part.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/offers.h"
#include "transport/shm/layout.h"

namespace weft::shm {

// The parts in this rank's arena. A part's id is its epoch and number, never 0; the epoch increases
// with each use of the part.
class BoardParts {
 public:
  // Returns whether a rank can have offered this id; true for 0 (no part).
  static bool exists(std::uint64_t part) {
    return static_cast<std::uint32_t>(part) < kFixedBoards + kBoards;
  }
  // Returns the part of fixed board `id`, the same on every rank.
  static std::uint64_t fixed(std::uint32_t id) { return std::uint64_t{1} << 32 | id; }

  // Allocates a part for a new board; this rank's parts start at `boards`. 0 if none is free.
  std::uint64_t offer(std::byte* boards) noexcept;
  void withdraw(std::uint64_t part) noexcept;
  // Makes the board of these parts. The parts of member i start at boards[i].
  std::unique_ptr<Board> make(std::span<std::byte* const> boards,
                              std::span<const std::uint64_t> parts, int me);

 private:
  friend class ShmBoard;
  struct Retired {
    std::uint32_t number;
    // Members that may still use the part.
    std::vector<std::pair<const std::atomic<std::uint64_t>*, std::uint64_t>> uses;
  };
  void retire(Retired retired) noexcept { retired_.push_back(std::move(retired)); }

  std::vector<std::uint32_t> epochs_ = std::vector<std::uint32_t>(kFixedBoards + kBoards, 1);
  std::vector<std::uint32_t> free_;
  std::uint32_t unused_ = kFixedBoards;  // first part that was never used
  std::vector<Retired> retired_;
};

}  // namespace weft::shm
