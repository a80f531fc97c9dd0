#include "support/fakes/fake_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <list>
#include <optional>

#include "topo/base/status.h"
#include "topo/base/thread.h"

namespace weft {

// An event may be recorded again, on another stream, before its earlier record is reached. A query
// uses the latest record; a wait keeps the record that was current when it began.
struct FakeDevice::FakeEvent {
  using Record = std::shared_ptr<std::atomic<bool>>;
  Record last() {
    const MutexLock lock(mutex);
    return record;
  }
  Mutex mutex;
  Record record WEFT_GUARDED_BY(mutex) = std::make_shared<std::atomic<bool>>(true);
};

struct FakeDevice::FakeStream {
  explicit FakeStream(int g)
      : gpu(g), thread(start_thread("a stream of the fake device", [this] { serve(); })) {}
  ~FakeStream() {
    {
      const MutexLock lock(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }
  void put(Work work) {
    {
      const MutexLock lock(mutex);
      if (captured) {
        captured->push_back(std::move(work));
        return;
      }
      queue.push_back(std::move(work));
    }
    changed.notify_all();
  }
  void serve() {
    std::uint32_t dice = 12345u + static_cast<std::uint32_t>(gpu);
    MutexLock lock(mutex);
    for (;;) {
      changed.wait(lock, [&]() WEFT_REQUIRES(mutex) { return stop || !queue.empty(); });
      if (queue.empty()) return;
      Work work = std::move(queue.front());
      lock.unlock();
      dice = dice * 1664525u + 1013904223u;
      // Random delays, so that code that does not synchronize reads stale bytes.
      if (dice >> 30 == 0) std::this_thread::sleep_for(std::chrono::microseconds(dice >> 25 & 63));
      work();
      lock.lock();
      queue.pop_front();
      if (queue.empty()) idle.notify_all();
    }
  }

  // Whether the stream waits, or has queued a wait, for a word that is not written yet.
  bool waits() WEFT_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return std::ranges::any_of(words, [](const Awaited& w) { return w.word->load() != w.value; });
  }
  struct Awaited {
    const std::atomic<std::uint32_t>* word;
    std::uint32_t value;
  };

  const int gpu;
  const std::thread::id maker = std::this_thread::get_id();
  Mutex mutex;
  std::list<Awaited> words WEFT_GUARDED_BY(mutex);
  std::condition_variable_any changed, idle;
  std::deque<Work> queue WEFT_GUARDED_BY(mutex);
  std::optional<Graph> captured WEFT_GUARDED_BY(mutex);
  bool stop WEFT_GUARDED_BY(mutex) = false;
  std::thread thread;
};

// ---- properties -----------------------------------------------------------------------------

std::string FakeDevice::describe(int gpu) const { return fmt::format("GPU {} (fake)", gpu); }
std::string FakeDevice::identity(int gpu) const { return fmt::format("fake-{}", gpu); }
bool FakeDevice::reaches(int gpu, int other) const { return gpu == other || !separate_; }

void FakeDevice::fail_next(const char* call, int after, bool of_memory) {
  const MutexLock lock(mutex_);
  failing_ = call;
  fail_after_ = after;
  fail_of_memory_ = of_memory;
}

void FakeDevice::check_injected(const char* call) {
  const MutexLock lock(mutex_);
  if (failing_ != call || fail_after_-- > 0) return;
  failing_.clear();
  if (fail_of_memory_) throw std::bad_alloc();
  throw Error(fmt::format("{} on fake GPU 0: injected failure", call));
}

// ---- streams -------------------------------------------------------------------------------

std::size_t FakeDevice::streams() const {
  const MutexLock lock(mutex_);
  return streams_.size();
}

FakeDevice::FakeStream& FakeDevice::stream_of(Stream stream, int gpu) {
  const MutexLock lock(mutex_);
  auto found = streams_.find(stream);
  if (found == streams_.end()) {
    if (stream) throw Error(fmt::format("stream on fake GPU {}: {} is not a stream", gpu, stream));
    found = streams_.emplace(nullptr, std::make_shared<FakeStream>(0)).first;
  }
  return *found->second;
}

Device::Stream FakeDevice::make_stream(int gpu) {
  auto made = std::make_shared<FakeStream>(gpu);
  const MutexLock lock(mutex_);
  Stream stream = made.get();
  streams_[stream] = std::move(made);
  return stream;
}

void FakeDevice::free_stream(Stream stream) noexcept {
  std::shared_ptr<FakeStream> last;
  const MutexLock lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  last = std::move(found->second);
  streams_.erase(found);
}

void FakeDevice::put(Stream stream, Work work) { stream_of(stream).put(std::move(work)); }

void FakeDevice::synchronize(Stream stream) {
  FakeStream& s = stream_of(stream);
  MutexLock lock(s.mutex);
  s.idle.wait(lock, [&]() WEFT_REQUIRES(s.mutex) { return s.queue.empty(); });
}

// An event may be freed before a stream reaches it.
Device::Event FakeDevice::make_event(int) {
  ++events_;
  return new std::shared_ptr<FakeEvent>(std::make_shared<FakeEvent>());
}
void FakeDevice::free_event(Event event) noexcept {
  --events_;
  delete static_cast<std::shared_ptr<FakeEvent>*>(event);
}
void FakeDevice::record(Event event, Stream stream) {
  FakeEvent& e = **static_cast<std::shared_ptr<FakeEvent>*>(event);
  const auto record = std::make_shared<std::atomic<bool>>(false);
  {
    const MutexLock lock(e.mutex);
    e.record = record;
  }
  put(stream, [record] { record->store(true, std::memory_order_release); });
}
bool FakeDevice::reached(Event event) {
  return (*static_cast<std::shared_ptr<FakeEvent>*>(event))
      ->last()
      ->load(std::memory_order_acquire);
}

void FakeDevice::wait_event(Stream stream, Event event) {
  put(stream, [record = (*static_cast<std::shared_ptr<FakeEvent>*>(event))->last()] {
    while (!record->load(std::memory_order_acquire))
      std::this_thread::sleep_for(std::chrono::microseconds(5));
  });
}

void FakeDevice::let_copy(int gpu, int copies) {
  copies_let_[static_cast<std::size_t>(gpu)] = copies;
}

void FakeDevice::copy(void* to, const void* from, std::size_t bytes, int gpu, Stream stream) {
  check_injected("copy");
  if (bytes == 0) return;
  {
    const MutexLock lock(mutex_);
    pageable_copies_ += pageable(to, bytes) || pageable(from, bytes);
    host_copies_ += !find(to) || !find(from);
  }
  put(stream, [=, this, g = static_cast<std::size_t>(gpu)] {
    for (int left = copies_let_[g]; left >= 0; left = copies_let_[g]) {
      if (left > 0 && copies_let_[g].compare_exchange_strong(left, left - 1)) break;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    std::memmove(local(to), local(from), bytes);
    ++copies_done_[g];
  });
}

// Whether this is unpinned host memory.
bool FakeDevice::pageable(const void* p, std::size_t bytes) const {
  if (!p || find(p)) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const auto next = pinned_.upper_bound(at);
  return next == pinned_.begin() || std::prev(next)->first + std::prev(next)->second < at + bytes;
}

// Translates a kernel operand. A GPU would fail on pageable host memory; these are counted.
void* FakeDevice::operand(const void* pointer) {
  void* const found = local(pointer);
  const MutexLock lock(mutex_);
  pageable_operands_ += found == pointer && pageable(pointer, 1);
  return found;
}

void FakeDevice::pin(void* memory, std::size_t bytes) {
  refuse_late("pin", -1);
  const MutexLock lock(mutex_);
  pinned_[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
}

void FakeDevice::unpin(void* memory) noexcept {
  note_return("unpin");
  const MutexLock lock(mutex_);
  pinned_.erase(reinterpret_cast<std::uintptr_t>(memory));
}

void FakeDevice::load(const DeviceWork& work, int gpu) {
  {
    const MutexLock lock(mutex_);
    if (work.loaded_with && loaded_.contains({work.loaded_with, 0, gpu})) return;
    if (!loaded_.emplace(work.title, work.code, gpu).second) return;
    late_loads_ += streams_waiting_.at(static_cast<std::size_t>(gpu)) > 0;
  }
  refuse_late(fmt::format("load of {}", work.title).c_str(), gpu);
}

// ---- calls that would block ------------------------------------------------------------------

namespace {
thread_local bool thread_of_weft = false;
}

void FakeDevice::enter_thread() noexcept { thread_of_weft = true; }

std::string FakeDevice::why_late(const char* call, int gpu) const {
  std::vector<std::shared_ptr<FakeStream>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [handle, stream] : streams_)
      if ((gpu < 0 || stream->gpu == gpu) &&
          (thread_of_weft || stream->maker == std::this_thread::get_id()))
        all.push_back(stream);
  }
  for (const auto& stream : all)
    if (stream->waits())
      return fmt::format(
          "{} on fake GPU {}, by {}: a stream of it waits for weft, and a GPU may let this call "
          "wait "
          "for that stream; make it before the stream waits",
          call, stream->gpu, thread_of_weft ? "a thread of weft's" : "the stream's own thread");
  return {};
}

void FakeDevice::refuse_late(const char* call, int gpu) const {
  if (late_memory_ && !std::string_view(call).starts_with("load")) return;
  if (const std::string why = why_late(call, gpu); !why.empty()) throw Error(why);
}

void FakeDevice::note_return(const char* call) noexcept {
  late_returns_ += std::ranges::any_of(streams_waiting_, [](int waiting) { return waiting > 0; });
  std::string why = why_late(call, -1);
  if (why.empty() || late_memory_) return;
  const MutexLock lock(mutex_);
  late_calls_.push_back(std::move(why));
}

std::vector<std::string> FakeDevice::late_calls() const {
  const MutexLock lock(mutex_);
  return late_calls_;
}

void FakeDevice::launch(const DeviceWork& work, int gpu, Stream stream) {
  check_injected("launch");
  load(work, gpu);
  // Aligned like kernel arguments.
  std::vector<std::max_align_t> args((work.bytes + sizeof(std::max_align_t) - 1) /
                                     sizeof(std::max_align_t));
  std::memcpy(args.data(), work.args, work.bytes);
  put(stream, [run = work.run, args = std::move(args)] {
    run(args.data(), [](const void* p) { return fake_device()->operand(p); });
  });
}

std::atomic<std::uint32_t>* FakeDevice::words(std::size_t count) {
  refuse_late("words", -1);
  const MutexLock lock(mutex_);
  words_.push_back({std::make_unique<std::atomic<std::uint32_t>[]>(count), count, false});
  return words_.back().memory.get();
}

// Freed words read as 1, so that no stream waits for one forever. They are never reused, so that a
// late write to one is detected.
void FakeDevice::free_words(std::atomic<std::uint32_t>* words) noexcept {
  note_return("free_words");
  const MutexLock lock(mutex_);
  for (Words& w : words_) {
    if (w.memory.get() != words) continue;
    for (std::size_t i = 0; i < w.count; ++i) w.memory[i].store(1);
    w.freed = true;
  }
}

std::size_t FakeDevice::pageable_operands() const {
  const MutexLock lock(mutex_);
  return pageable_operands_;
}

std::size_t FakeDevice::host_copies() const {
  const MutexLock lock(mutex_);
  return host_copies_;
}
std::size_t FakeDevice::pageable_copies() const {
  const MutexLock lock(mutex_);
  return pageable_copies_;
}

std::size_t FakeDevice::late_writes() const {
  const MutexLock lock(mutex_);
  std::size_t late = 0;
  for (const Words& w : words_)
    for (std::size_t i = 0; w.freed && i < w.count; ++i) late += w.memory[i].load() != 1;
  return late;
}

void FakeDevice::write_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) {
  check_injected("write_word");
  put(stream, [word, value] { word->store(value, std::memory_order_release); });
}
void FakeDevice::wait_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) {
  const auto gpu = static_cast<std::size_t>(gpu_of(stream));
  FakeStream& s = stream_of(stream);
  const auto enter = [word, value, &s] {
    const MutexLock lock(s.mutex);
    return s.words.insert(s.words.end(), {word, value});
  };
  std::optional<std::list<FakeStream::Awaited>::iterator> entry;
  if (!capturing(stream)) entry = enter();  // a replay enters when it runs
  put(stream, [word, value, entry, enter, &s, &waiting = streams_waiting_.at(gpu)] {
    const auto at = entry ? *entry : enter();
    ++waiting;
    while (word->load(std::memory_order_acquire) != value)
      std::this_thread::sleep_for(std::chrono::microseconds(5));
    --waiting;
    const MutexLock lock(s.mutex);
    s.words.erase(at);
  });
}

void FakeDevice::hold(Stream stream, const std::atomic<std::uint32_t>* word) {
  put(stream, [word] {
    while (word->load(std::memory_order_acquire) != 1)
      std::this_thread::sleep_for(std::chrono::microseconds(5));
  });
}

int FakeDevice::gpu_of(Stream stream) { return stream_of(stream).gpu; }

// ---- graphs --------------------------------------------------------------------------------

bool FakeDevice::capturing(Stream stream) {
  FakeStream& s = stream_of(stream);
  const MutexLock lock(s.mutex);
  return s.captured.has_value();
}

void FakeDevice::begin_capture(Stream stream) {
  FakeStream& s = stream_of(stream);
  const MutexLock lock(s.mutex);
  s.captured.emplace();
}

FakeDevice::Graph FakeDevice::end_capture(Stream stream) {
  FakeStream& s = stream_of(stream);
  const MutexLock lock(s.mutex);
  Graph graph = std::move(*s.captured);
  s.captured.reset();
  return graph;
}

void FakeDevice::launch_graph(const Graph& graph, Stream stream) {
  for (const Work& work : graph) put(stream, work);
}

FakeDevice* fake_device() {
  static FakeDevice* const device = new FakeDevice;
  return device;
}

FakeDevice& use_fake_device() {
  Device* const now = fake_device();
  // An earlier test may have called device() in a process without a device.
  if (detail::active_device.load() != nullptr && detail::active_device.load() != now)
    throw Error("use_fake_device() after device(): this process has another one already");
  detail::active_device.store(now);
  detail::device_looked_for.store(true);
  put_fake_nics_on_rails();
  return *fake_device();
}

}  // namespace weft
