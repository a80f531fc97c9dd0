// A device without a GPU, for tests of all code above the device interface.
//
// It is stricter than a GPU. Only work on its streams may access its memory; other accesses fault,
// so that a forgotten copy crashes at once. Streams are threads with random delays, so that work is
// complete only after synchronization. It rejects allocations and kernel loads while a stream waits
// for weft (late_calls()). Peers map memory through memfd. Tests select it with use_fake_device(),
// and the program weft_with_fakes (with_fakes.cc) with WEFT_DEVICE=fake.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "topo/base/mutex.h"
#include "transport/gpu/device.h"

namespace weft {

class FakeDevice final : public Device {
 public:
  static constexpr int kGpus = 4;

  int count() const noexcept override { return kGpus; }
  std::string describe(int gpu) const override;
  std::string identity(int gpu) const override;
  std::string pci(int gpu) const override { return gpu == chosen_ ? chosen_pci_ : ""; }
  int chosen() const noexcept override { return chosen_; }
  bool reaches(int gpu, int other) const override;
  Residence residence(const void* pointer) const noexcept override;
  void* alloc(int gpu, std::size_t bytes) override;
  void free(void* memory) override;
  void pin(void* memory, std::size_t bytes) override;
  void unpin(void* memory) noexcept override;
  Stream make_stream(int gpu) override;
  void free_stream(Stream stream) noexcept override;
  Event make_event(int gpu) override;
  void free_event(Event event) noexcept override;
  void record(Event event, Stream stream) override;
  bool reached(Event event) override;
  void wait_event(Stream stream, Event event) override;
  void copy(void* to, const void* from, std::size_t bytes, int gpu, Stream stream) override;
  void launch(const DeviceWork& work, int gpu, Stream stream) override;
  void load(const DeviceWork& work, int gpu) override;
  std::atomic<std::uint32_t>* words(std::size_t count) override;
  void free_words(std::atomic<std::uint32_t>* words) noexcept override;
  void write_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) override;
  void wait_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) override;
  // Blocks the stream until a test writes 1 to `word`, like a long kernel of the application. The
  // stream does not wait for weft, so weft's calls meanwhile are not late.
  void hold(Stream stream, const std::atomic<std::uint32_t>* word);
  int gpu_of(Stream stream) override;
  bool capturing(Stream stream) override;
  ExportedMemory export_memory(const void* inside) override;
  void* open(const ExportedMemory& exported, int pid, int gpu) override;
  void close(void* opened) noexcept override;
  void enter_thread() noexcept override;
  bool takes_remote_writes(int) const override { return nics_; }
  void flush_remote_writes(int gpu) override;
  NicMemory nic_memory(const void* data, std::size_t bytes) override;

  // ---- for tests ----
  using Work = std::function<void()>;
  using Graph = std::vector<Work>;
  void begin_capture(Stream stream);
  Graph end_capture(Stream stream);
  void launch_graph(const Graph& graph, Stream stream);
  void synchronize(Stream stream);
  void put(Stream stream, Work work);  // any function, in stream order
  // Memory that peers cannot map (like cudaMallocAsync), and memory that the host may also access.
  void* alloc_private(int gpu, std::size_t bytes);
  void* alloc_managed(std::size_t bytes);
  // Host address of device memory, which a test may read and write after synchronize().
  void* local(const void* pointer) const;
  // Selects a GPU, with its PCI address, as the application would; -1: none.
  void choose(int gpu, std::string pci = {}) {
    chosen_ = gpu;
    chosen_pci_ = std::move(pci);
  }
  // Disables peer access between GPUs.
  void separate(bool on) { separate_ = on; }
  // Lets RDMA NICs reach device memory (fake_nic.cc wraps any transport). In weft_with_fakes,
  // WEFT_DEVICE=fake-nic does this.
  void give_nics(bool on) { nics_ = on; }
  void hide_from_nics(int gpu) { hidden_ = gpu; }  // -1: none
  bool has_nics() const { return nics_; }
  // Host address of device memory that NICs reach; nullptr if they do not reach it.
  void* alias(const void* data) const noexcept;
  // A NIC's write, which becomes visible at flush_remote_writes() of that GPU.
  void write_remotely(void* to, std::vector<std::byte> bytes);
  // After `after` more calls of this name ("open", "launch", "copy", "export", "flush",
  // "write_word"), the next one throws a CUDA error or, with `of_memory`, an out-of-memory error.
  void fail_next(const char* call, int after = 0, bool of_memory = false);
  // After `copies` more copies (of more than 0 bytes), the streams of `gpu` block; -1: no limit.
  void let_copy(int gpu, int copies);
  int copies_done(int gpu) const { return copies_done_[static_cast<std::size_t>(gpu)]; }
  std::size_t allocations() const;        // live: its own and those opened from peers
  std::size_t late_writes() const;        // by streams to freed words
  std::size_t pageable_copies() const;    // to or from unpinned host memory
  std::size_t host_copies() const;        // to or from any host memory
  std::size_t pageable_operands() const;  // of kernels: a GPU would fail
  // Names of late calls: calls that may synchronize a GPU, made while one of its streams waits for
  // a word, by the thread that made the stream or by a thread of weft. Late calls that allocate
  // (alloc, pin, words, open) or load code (load, launch) throw; the others (free, free_words,
  // unpin, close) are recorded.
  std::vector<std::string> late_calls() const;
  // Whether allocating and freeing is allowed while a stream waits, as on a GPU where these calls
  // do not block (Cuda.NoCallWaitsForAStreamThatWaits on an H200). Loads are always late.
  void allow_late_memory(bool allowed) { late_memory_ = allowed; }
  // Kernel loads and frees of memory by any thread while a stream waited.
  std::size_t late_loads() const { return late_loads_; }
  std::size_t late_returns() const { return late_returns_; }
  std::size_t streams() const;
  int events() const { return events_; }  // not freed
  int streams_waiting(int gpu) const { return streams_waiting_[static_cast<std::size_t>(gpu)]; }

 private:
  struct Block;
  struct FakeStream;
  struct FakeEvent;
  void* add(int gpu, std::size_t bytes, MemoryKind kind, bool exportable, int pid, int fd);
  void remove(void* base, const char* call);
  const Block* find(const void* pointer) const WEFT_REQUIRES(mutex_);
  bool pageable(const void* p, std::size_t bytes) const WEFT_REQUIRES(mutex_);
  void* operand(const void* pointer);
  void check_injected(const char* call);
  FakeStream& stream_of(Stream stream, int gpu = 0);
  // Why this thread's call is late; empty if no stream of that GPU (-1: of any GPU) waits.
  std::string why_late(const char* call, int gpu) const;
  void refuse_late(const char* call, int gpu) const;
  void note_return(const char* call) noexcept;

  mutable Mutex mutex_;
  // Keyed by user address.
  std::map<std::uintptr_t, std::shared_ptr<Block>> blocks_ WEFT_GUARDED_BY(mutex_);
  // Recently freed blocks, which late work may still access.
  std::deque<std::shared_ptr<Block>> freed_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<Stream, std::shared_ptr<FakeStream>> streams_ WEFT_GUARDED_BY(mutex_);
  struct Words {
    std::unique_ptr<std::atomic<std::uint32_t>[]> memory;
    std::size_t count = 0;
    bool freed = false;
  };
  std::vector<Words> words_ WEFT_GUARDED_BY(mutex_);                      // including freed ones
  std::map<std::uintptr_t, std::size_t> pinned_ WEFT_GUARDED_BY(mutex_);  // address -> bytes
  std::size_t pageable_copies_ WEFT_GUARDED_BY(mutex_) = 0;
  std::size_t host_copies_ WEFT_GUARDED_BY(mutex_) = 0;
  std::size_t pageable_operands_ WEFT_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_id_ WEFT_GUARDED_BY(mutex_) = 1;
  std::string failing_ WEFT_GUARDED_BY(mutex_);
  int fail_after_ WEFT_GUARDED_BY(mutex_) = 0;
  bool fail_of_memory_ WEFT_GUARDED_BY(mutex_) = false;
  std::array<std::atomic<int>, kGpus> copies_let_{-1, -1, -1, -1}, copies_done_{};
  std::atomic<int> events_{0};
  int chosen_ = -1;
  std::string chosen_pci_;
  std::atomic<bool> separate_{false};
  std::atomic<bool> nics_{false};
  std::atomic<int> hidden_{-1};
  struct RemoteWrite {
    void* to;
    std::vector<std::byte> bytes;
  };
  std::vector<RemoteWrite> remote_writes_ WEFT_GUARDED_BY(mutex_);  // not flushed yet
  std::array<std::atomic<int>, kGpus> streams_waiting_{};           // that wait for a word, by GPU
  // Kernels loaded, by GPU.
  std::set<std::tuple<std::string, std::uint64_t, int>> loaded_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::string> late_calls_ WEFT_GUARDED_BY(mutex_);
  std::atomic<std::size_t> late_loads_{0}, late_returns_{0};
  std::atomic<bool> late_memory_{true};
};

// The fake device of this process, created at first use and never destroyed.
FakeDevice* fake_device();
// Makes device() return the fake. Throws Error if device() has already returned another.
FakeDevice& use_fake_device();
// Gives the rails of jobs created later NICs that reach device memory while has_nics(), except
// verbs rails, which register it themselves. A NIC's completed receives become visible only at
// Device::flush_remote_writes(). use_fake_device() calls this, too.
void put_fake_nics_on_rails();

}  // namespace weft
