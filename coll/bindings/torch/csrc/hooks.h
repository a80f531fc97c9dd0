// Tells PyTorch which calls of a group are over, and that the group has failed. PyTorch's flight
// recorder listens: it writes its dump when a group fails. This file does not know which call is
// made.
#pragma once

#include <weft.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Hooks.hpp>

namespace weft_torch {

// Hooks are called without the mutex. All functions are thread-safe.
class Hooks {
 public:
  // The World must live until leave().
  explicit Hooks(weft_world_t* world) : world_(world) {}
  ~Hooks() { leave(); }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

  void add(std::int64_t id, c10d::CompletionHook hook);
  // The first hook starts a thread that looks for failures. Without the thread, a rank that makes
  // no call would not notice a failure, and that rank may be the one for which the others wait.
  void add(std::int64_t id, c10d::AbortHook hook);
  void remove_completion(std::int64_t id);
  void remove_abort(std::int64_t id);

  // A call goes on when it has been handed out. Nobody may have asked its Work whether it is over:
  // then it is asked before the abort hooks are called.
  void started(const c10::intrusive_ptr<c10d::Work>& work);
  // Either of these ends that; for other calls they do nothing.
  void completed(std::uint64_t key);  // the call has not failed
  void forget(std::uint64_t key);

  // Has the abort hooks called where the World has failed: soon, and on the thread that looks,
  // since a dump takes PyTorch a second, and may wait for Python's lock.
  void look() { changed_.notify_all(); }
  // Has them called.
  void abort();
  // Returns when the abort hooks that are due have done their part. Python's lock must be free.
  void leave();

 private:
  void watch();
  void tell();

  weft_world_t* const world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false, leaving_ = false;
  std::map<std::int64_t, c10d::CompletionHook> completion_;
  std::map<std::int64_t, c10d::AbortHook> abort_;
  std::map<std::uint64_t, c10::weak_intrusive_ptr<c10d::Work>> started_;
  std::thread watcher_;
};

}  // namespace weft_torch
