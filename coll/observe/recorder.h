// The flight recorder: the last operations of a rank, in memory that outlives its process.
//
// All ranks of a machine share one memfd, the book; each writes to a page of its own and may read
// the others'. The memory is there as long as any of them lives, so the page of a rank that is
// stopped or dead is read by its neighbours, or from outside through /proc/PID/fd. There is no name
// in /dev/shm that could be left behind.
//
// One writer per page (under the lock of the rank's Core), never waiting; readers repeat what was
// written under their eyes.
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

// A value that one thread writes and others, of any process, read: a seqlock. T: 8-byte words.
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
  // False when the writer was always in between (or died there).
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
  // By the writer: one word of what it wrote.
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

// An operation. With the version of its SeqBox, one cache line.
struct Record {
  std::uint64_t number, sequence, count, start_ns;  // count: CallDescriptor::word()
  std::uint32_t comm;
  std::int32_t leader, members, root;
  std::uint8_t collective, type, op;
  std::uint8_t state;  // OpState, and the bits below
  std::uint32_t took_ms;
};
// kLane: by a lane of device memory (gpu/lane.h); kDevice: this rank passed device memory;
// kReplay: of a captured call.
inline constexpr std::uint8_t kLane = 0x04, kDevice = 0x08, kReplay = 0x10, kUneven = 0x20,
                              kMessage = 0x40, kSends = 0x80;
static_assert(sizeof(SeqBox<Record>) == 64);

// How far an operation is that waits.
struct Survey {
  std::uint64_t number;  // of the operation, 0: none
  std::uint64_t part, rounds, rounds_done;
  std::uint64_t npeers;
  PeerProgress peers[kPeers];
};

inline constexpr std::uint32_t kReady = 1, kLeft = 2;  // kLeft: in good order

struct alignas(64) Page {
  // Written before `ready`, once.
  std::atomic<std::uint32_t> ready;  // kReady, kLeft
  std::int32_t rank, pid, fd, nlinks;
  std::uint64_t born;
  char host[kName];
  char link[kLinks][kName];
  // An outsider counts `asked` up; the rank's control thread gathers what all ranks say, puts it
  // into a file (/proc/pid/fd/answer_fd) and lets `answered` follow.
  alignas(64) std::atomic<std::uint64_t> asked;
  std::atomic<std::uint64_t> answered, answer_bytes;
  std::atomic<std::int32_t> answer_fd;
  alignas(64) std::atomic<std::uint64_t> begun;
  std::atomic<std::uint64_t> waits_since_ns;  // 0: does not wait
  alignas(64) SeqBox<Record> records[kRecords];
  SeqBox<Record> elders[kElders];  // under way when their line of `records` was used again
  SeqBox<Survey> surveys[kSurveys];
};

struct Head {
  std::atomic<std::uint64_t> magic;  // kMagic, written last
  std::atomic<std::uint64_t> job;
  std::int32_t size;   // ranks of the job
  std::int32_t pages;  // of this machine
  std::uint64_t page_bytes, born_ns;
  char machine[kName];
};
inline constexpr std::uint64_t kMagic = 0x77656674'626f6f32;
inline constexpr const char* kLabel = "weft-recorder";  // of the memfd
constexpr std::size_t kHeadBytes = (sizeof(Head) + 63) / 64 * 64;

}  // namespace book

// A book as a reader sees it.
class BookView {
 public:
  // Throws Error when this is no book, or that of another version of weft.
  explicit BookView(SharedRegion region);
  std::uint64_t job() const { return head().job; }
  int size() const { return head().size; }
  int pages() const { return head().pages; }
  const book::Page& page(int i) const;
  book::Page& page(int i);
  double age_s() const;
  // What the page says of its rank, and /proc of its process.
  RankSnapshot read(int i) const;
  char state(int i) const;  // see RankSnapshot::state
  // read() of every page that a rank has signed.
  std::vector<RankSnapshot> read_all() const;

 private:
  const book::Head& head() const { return *reinterpret_cast<const book::Head*>(region_.data()); }
  SharedRegion region_;
};

class Recorder {
 public:
  // Every rank of the job makes one at the same time. links: what the index of a link stands for.
  // any_traces(): whether `traces` is set on any of them.
  Recorder(Job& job, const Topology& topology, const std::vector<std::string>& links,
           bool traces = false);
  bool any_traces() const noexcept { return any_traces_; }

  // An operation begins; returns its number.
  std::uint64_t begin(const CallDescriptor& call) noexcept;
  void end(std::uint64_t number, OpState state) noexcept;
  // The end of one that took hardly any time.
  void end_at_once(std::uint64_t number) noexcept;

  // This rank waits and nothing moves: how far its operations are.
  struct Stalled {
    std::uint64_t number = 0, part = 0, rounds = 0, rounds_done = 0;
    std::vector<PeerProgress> peers;
  };
  void stalled(const std::vector<Stalled>& operations) noexcept;
  void moving() noexcept;  // the end of that
  bool is_stalled() const noexcept { return stalled_; }

  // Thread-safe.
  std::uint64_t job() const { return book_->job(); }
  RankSnapshot own() const { return book_->read(mine_); }
  std::vector<RankSnapshot> of_this_machine() const { return book_->read_all(); }
  // Of this rank, and of those of its machine that cannot speak for themselves.
  std::vector<RankSnapshot> own_and_mute() const;
  void leave() noexcept { page_->ready.store(book::kLeft, std::memory_order_release); }
  book::Page& page() { return *page_; }

 private:
  static void end(SeqBox<book::Record>& box, OpState state, std::uint32_t took_ms) noexcept;
  void keep(const SeqBox<book::Record>& box) noexcept;

  std::unique_ptr<BookView> book_;
  Fd fd_;  // for outsiders
  int mine_ = 0;
  book::Page* page_ = nullptr;
  bool stalled_ = false, any_traces_ = false;
};

}  // namespace weft
