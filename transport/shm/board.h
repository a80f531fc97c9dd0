// Boards in the memory that ranks of a machine share, and which part of it is whose.
//
// Every rank gives each board one part of its own arena, whichever is free, and tells the others
// which. A part is free again when all members of its board are through with theirs: until then a
// slow one may still read it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/shm/layout.h"
#include "transport/transport.h"

namespace weft::shm {

// The parts of this rank. A part is told to others as epoch and number, never 0; the epoch rises
// with each use.
class BoardParts {
 public:
  // The part that board `id` of the fixed ones has on every rank.
  static std::uint64_t fixed(std::uint32_t id) { return std::uint64_t{1} << 32 | id; }

  // `boards`: where the parts of this rank begin. 0: all are in use.
  std::uint64_t offer(std::byte* boards) noexcept;
  void withdraw(std::uint64_t part) noexcept;
  // boards[i]: where the parts of member i begin.
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
  std::uint32_t unused_ = kFixedBoards;  // from here on never used
  std::vector<Retired> retired_;
};

}  // namespace weft::shm
