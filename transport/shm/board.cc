// Allocates board parts in the arena and passes messages through them.
#include "transport/shm/board.h"

#include <cstring>
#include <utility>

#include "transport/shm/order.h"

namespace weft::shm {
namespace {

std::uint32_t number_of(std::uint64_t part) { return static_cast<std::uint32_t>(part); }
std::uint64_t use_of(std::uint64_t part) { return (part >> 32) * 2; }
std::size_t half_of(std::uint32_t number) { return number < kFixedBoards ? kHalf : kSmallHalf; }

BoardPart* part_at(std::byte* boards, std::uint32_t number) {
  const std::size_t offset = number < kFixedBoards
                                 ? number * kPart
                                 : kFixedBoards * kPart + (number - kFixedBoards) * kSmallPart;
  return reinterpret_cast<BoardPart*>(boards + offset);
}

BoardHalf* half_at(BoardPart* part, std::uint32_t number, std::uint32_t round) {
  return reinterpret_cast<BoardHalf*>(reinterpret_cast<std::byte*>(part + 1) +
                                      (round & 1) * half_of(number));
}

// Prefetches the line for writing, which invalidates the readers' cached copies.
void prefetch_to_write(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const std::byte*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

class ShmBoard final : public Board {
 public:
  ShmBoard(BoardParts& owner, std::span<std::byte* const> boards,
           std::span<const std::uint64_t> parts, int me)
      : owner_(owner), me_(me), number_(number_of(parts[static_cast<std::size_t>(me)])) {
    // A board never mixes large and small parts: fixed boards are fixed on every rank.
    half_ = half_of(number_);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      BoardPart* part = part_at(boards[i], number_of(parts[i]));
      uses_.emplace_back(&part->use, use_of(parts[i]));
      firsts_.push_back(reinterpret_cast<std::byte*>(part + 1));
    }
    mine_ = &part_at(boards[static_cast<std::size_t>(me)], number_)->use;
  }
  ~ShmBoard() override {
    mine_->fetch_or(1, std::memory_order_release);
    if (number_ >= kFixedBoards) owner_.retire({number_, std::move(uses_)});
  }
  ShmBoard(const ShmBoard&) = delete;
  ShmBoard& operator=(const ShmBoard&) = delete;

  std::size_t capacity() const noexcept override {
    return number_ < kFixedBoards ? kBoardBytes : kSmallBoardBytes;
  }
  void publish(std::uint32_t round, const void* data, std::size_t bytes,
               const Head& head) noexcept override {
    BoardHalf* mine = half(me_, round);
    mine->sign = head.sign;
    // Copy word by word: `head` was just written by words, and wider loads would stall on store
    // forwarding.
    Head& kept = *head_at(mine);
    std::atomic_ref(kept.sign).store(head.sign, std::memory_order_relaxed);
    for (int i = 0; i < 4; ++i)
      std::atomic_ref(kept.about[i]).store(head.about[i], std::memory_order_relaxed);
    if (bytes) std::memcpy(mine->data(), data, bytes);
    hand_on(me_, -1);
    mine->round.store(round, std::memory_order_release);
  }
  const void* read(int member, std::uint32_t round) const noexcept override {
    BoardHalf* theirs = half(member, round);
    if (theirs->round.load(std::memory_order_acquire) != round) return nullptr;
    take_over(member, -1);
    return theirs->data();
  }
  int collect(std::uint32_t round, std::uint64_t sign, const void** from) const noexcept override {
    // All members have read the previous round, whose half is written next: fetch its line.
    prefetch_to_write(half(me_, round + 1));
    int other = -1;
    for (int i = static_cast<int>(firsts_.size()); i-- > 0;) {
      BoardHalf* theirs = half(i, round);
      from[i] = theirs->data();
      if (i != me_ && theirs->sign != sign) other = i;
    }
    return other;
  }
  Head head(int member, std::uint32_t round) const noexcept override {
    return *head_at(half(member, round));
  }

 private:
  Head* head_at(BoardHalf* half) const noexcept {
    return reinterpret_cast<Head*>(half->data() + capacity());
  }
  BoardHalf* half(int member, std::uint32_t round) const noexcept {
    return reinterpret_cast<BoardHalf*>(firsts_[static_cast<std::size_t>(member)] +
                                        (round & 1) * half_);
  }

  std::vector<std::byte*> firsts_;  // the first half of each member
  std::size_t half_ = 0;
  BoardParts& owner_;
  int me_;
  std::uint32_t number_;
  std::atomic<std::uint64_t>* mine_ = nullptr;
  std::vector<std::pair<const std::atomic<std::uint64_t>*, std::uint64_t>> uses_;
};

std::uint64_t BoardParts::offer(std::byte* boards) noexcept {
  std::erase_if(retired_, [&](Retired& r) {
    std::erase_if(r.uses, [](const auto& use) {
      return use.first->load(std::memory_order_acquire) != use.second;
    });
    if (r.uses.empty()) free_.push_back(r.number);
    return r.uses.empty();
  });
  std::uint32_t number;
  if (!free_.empty()) {
    number = free_.back();  // LIFO: untouched pages need no memory
    free_.pop_back();
  } else if (unused_ < kFixedBoards + kBoards) {
    number = unused_++;
  } else {
    return 0;
  }
  const std::uint64_t part = std::uint64_t{++epochs_[number]} << 32 | number;
  BoardPart* at = part_at(boards, number);
  // No member reads the part now. Clear the rounds of the former use, so that members do not take
  // them for new rounds.
  for (const std::uint32_t round : {0u, 1u})
    half_at(at, number, round)->round.store(0, std::memory_order_relaxed);
  at->use.store(use_of(part), std::memory_order_release);
  return part;
}

void BoardParts::withdraw(std::uint64_t part) noexcept {
  if (part && number_of(part) >= kFixedBoards) free_.push_back(number_of(part));
}

std::unique_ptr<Board> BoardParts::make(std::span<std::byte* const> boards,
                                        std::span<const std::uint64_t> parts, int me) {
  return std::make_unique<ShmBoard>(*this, boards, parts, me);
}

}  // namespace weft::shm
