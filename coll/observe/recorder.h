// The flight recorder stores the last operations of a rank in memory that outlives its process.
//
// All ranks of a machine share one memfd, the book; each rank writes its own page and may read the
// others. The book exists as long as any of these ranks, so the other ranks, and other processes
// through /proc/PID/fd, can read the page of a stopped or dead rank. The book has no name in
// /dev/shm, so no file remains after a crash.
//
// Each page has one writer (under the lock of the rank's Core), which never waits; a reader retries
// if the writer changed the page during the read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "coll/call_descriptor.h"
#include "coll/observe/rank_snapshot.h"
#include "topo/topology.h"
#include "transport/control/socket.h"
#include "transport/job/bootstrap.h"
#include "transport/memory/shared_region.h"

namespace weft {

// A seqlock: one thread writes the value, threads of any process read it. T consists of 8-byte
// words.
template <class T>
class SeqBox {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  static constexpr std::size_t kWords = sizeof(T) / 8;

 public:
  void store(const T& value) noexcept {
    std::uint64_t words[kWords];
    std::memcpy(words, &value, sizeof value);
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }
  // Returns false if every attempt overlapped a write (or the writer died during a write).
  bool load(T& value) const noexcept {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      std::uint64_t words[kWords];
      const std::uint64_t version = version_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
      std::memcpy(&value, words, sizeof value);
      return true;
    }
    return false;
  }
  // For the writer: returns one word of the value that it wrote.
  std::uint64_t word(std::size_t i) const noexcept {
    return words_[i].load(std::memory_order_relaxed);
  }
  void set_word(std::size_t i, std::uint64_t value) noexcept {
    words_[i].store(value, std::memory_order_release);
  }

 private:
  std::atomic<std::uint64_t> version_;
  std::atomic<std::uint64_t> words_[kWords];
};

namespace book {

inline constexpr int kRecords = 128, kElders = 16, kSurveys = 8, kPeers = kMostPeers, kLinks = 16;
inline constexpr std::size_t kName = 64;

// The record of an operation. With the version of its SeqBox it fills one cache line.
struct Record {
  std::uint64_t number, sequence, count, start_ns;  // count: CallDescriptor::word()
  std::uint32_t comm;
  std::int32_t leader, members, root;
  std::uint8_t collective, type, op;  // op: RedOp; from bit 4 on, the Codec
  std::uint8_t state;                 // OpState, and the bits below
  std::uint32_t took_ms;
};
// Bits of Record::state. kLane: a lane ran the operation (gpu/lane.h); kDevice: this rank passed
// device memory; kReplay: the operation replays a captured call.
inline constexpr std::uint8_t kLane = 0x04, kDevice = 0x08, kReplay = 0x10, kUneven = 0x20,
                              kMessage = 0x40, kSends = 0x80;
static_assert(sizeof(SeqBox<Record>) == 64);
// Returns the record of a call that starts, without its number and its start time.
Record pack(const CallDescriptor& call) noexcept;

// The progress of a waiting operation.
struct Survey {
  std::uint64_t number;  // number of the operation; 0: none
  std::uint64_t part, rounds, rounds_done;
  std::uint64_t npeers;
  PeerProgress peers[kPeers];
};

inline constexpr std::uint32_t kReady = 1, kLeft = 2;  // kLeft: the rank left cleanly

struct alignas(64) Page {
  // The rank writes the fields below once, before it sets `ready`.
  std::atomic<std::uint32_t> ready;  // kReady, kLeft
  std::int32_t rank, pid, fd, nlinks;
  std::uint64_t born;
  char host[kName];
  char link[kLinks][kName];
  // Another process requests snapshots by incrementing `asked`; the rank's control thread then
  // gathers the snapshots of all ranks, writes them to a file (/proc/pid/fd/answer_fd), and sets
  // `answered` to `asked`.
  alignas(64) std::atomic<std::uint64_t> asked;
  std::atomic<std::uint64_t> answered, answer_bytes;
  std::atomic<std::int32_t> answer_fd;
  alignas(64) std::atomic<std::uint64_t> begun;
  std::atomic<std::uint64_t> waits_since_ns;  // 0: not waiting
  alignas(64) SeqBox<Record> records[kRecords];
  SeqBox<Record> elders[kElders];  // unfinished operations whose entry in `records` was reused
  SeqBox<Survey> surveys[kSurveys];
};

struct Head {
  std::atomic<std::uint64_t> magic;  // kMagic, written last
  std::atomic<std::uint64_t> job;
  std::int32_t size;   // ranks of the job
  std::int32_t pages;  // one per rank of this machine
  std::uint64_t page_bytes, born_ns;
  char machine[kName];
};
inline constexpr std::uint64_t kMagic = 0x77656674'626f6f32;
inline constexpr const char* kLabel = "weft-recorder";  // name of the memfd
constexpr std::size_t kHeadBytes = (sizeof(Head) + 63) / 64 * 64;

}  // namespace book

// Read access to a book.
class BookView {
 public:
  // Throws Error if the region is not a book, or belongs to another version of weft.
  explicit BookView(SharedRegion region);
  std::uint64_t job() const { return head().job; }
  int size() const { return head().size; }
  int pages() const { return head().pages; }
  const book::Page& page(int i) const;
  book::Page& page(int i);
  double age_s() const;
  // Returns the snapshot of page i's rank, from the page and from the process's files in /proc.
  RankSnapshot read(int i) const;
  char state(int i) const;  // see RankSnapshot::state
  // Returns read() of every page that is ready.
  std::vector<RankSnapshot> read_all() const;

 private:
  const book::Head& head() const { return *reinterpret_cast<const book::Head*>(region_.data()); }
  SharedRegion region_;
};

class Recorder {
 public:
  // All ranks of the job construct their recorders at the same time. links: the names of the links,
  // by index. any_traces(): whether any rank set `traces`.
  Recorder(Job& job, const Topology& topology, const std::vector<std::string>& links,
           bool traces = false);
  bool any_traces() const noexcept { return any_traces_; }

  // Records that an operation begins, and returns its number. `packed`: from pack(); its sequence
  // number is replaced.
  std::uint64_t begin(const book::Record& packed, std::uint64_t sequence) noexcept;
  std::uint64_t begin(const CallDescriptor& call) noexcept {
    return begin(book::pack(call), call.sequence);
  }
  void end(std::uint64_t number, OpState state) noexcept;
  // Records the end of an operation of negligible duration.
  void end_at_once(std::uint64_t number) noexcept;

  // The progress of an operation that makes none while this rank waits.
  struct Stalled {
    std::uint64_t number = 0, part = 0, rounds = 0, rounds_done = 0;
    std::vector<PeerProgress> peers;
  };
  void stalled(const std::vector<Stalled>& operations) noexcept;
  void moving() noexcept;  // the stall has ended
  bool is_stalled() const noexcept { return stalled_; }

  // The public functions below are thread-safe.
  std::uint64_t job() const { return book_->job(); }
  RankSnapshot own() const { return book_->read(mine_); }
  std::vector<RankSnapshot> of_this_machine() const { return book_->read_all(); }
  // The snapshots of this rank, and of the ranks of its machine that are stopped, dead or have
  // left.
  std::vector<RankSnapshot> own_and_mute() const;
  void leave() noexcept { page_->ready.store(book::kLeft, std::memory_order_release); }
  book::Page& page() { return *page_; }

 private:
  static void end(SeqBox<book::Record>& box, OpState state, std::uint32_t took_ms) noexcept;
  void keep(const SeqBox<book::Record>& box) noexcept;

  std::unique_ptr<BookView> book_;
  Fd fd_;  // keeps the book accessible to other processes
  int mine_ = 0;
  book::Page* page_ = nullptr;
  bool stalled_ = false, any_traces_ = false;
};

}  // namespace weft
