// Boards in the memory that the ranks of a machine share, and which part of it each board has.
//
// Every rank gives each board one free part of its own arena, and tells the other members which.
// A part is free again when all members have left its board: until then a slow member may still
// read the part.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/offers.h"
#include "transport/shm/layout.h"

namespace weft::shm {

// The parts in this rank's arena. Ranks name a part to each other by its epoch and number, never
// 0; the epoch rises with each use of the part.
class BoardParts {
 public:
  // Whether a rank can have offered this; 0, none, counts.
  static bool exists(std::uint64_t part) {
    return static_cast<std::uint32_t>(part) < kFixedBoards + kBoards;
  }
  // Returns the part that fixed board `id` has on every rank.
  static std::uint64_t fixed(std::uint32_t id) { return std::uint64_t{1} << 32 | id; }

  // Takes a part for a new board; `boards` is where this rank's parts begin. 0: none is free.
  std::uint64_t offer(std::byte* boards) noexcept;
  void withdraw(std::uint64_t part) noexcept;
  // Makes the board of these parts. boards[i] is where the parts of member i begin.
  std::unique_ptr<Board> make(std::span<std::byte* const> boards,
                              std::span<const std::uint64_t> parts, int me);

 private:
  friend class ShmBoard;
  struct Retired {
    std::uint32_t number;
    std::vector<std::pair<const std::atomic<std::uint64_t>*, std::uint64_t>> uses;  // not yet over
  };
  void retire(Retired retired) noexcept { retired_.push_back(std::move(retired)); }

  std::vector<std::uint32_t> epochs_ = std::vector<std::uint32_t>(kFixedBoards + kBoards, 1);
  std::vector<std::uint32_t> free_;
  std::uint32_t unused_ = kFixedBoards;  // the first part that was never used
  std::vector<Retired> retired_;
};

}  // namespace weft::shm
