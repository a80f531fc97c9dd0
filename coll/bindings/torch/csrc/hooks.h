// Notifies PyTorch of the completed calls of a group, and of the group's failure: PyTorch's flight
// recorder then writes its dump. This file does not depend on which call is made.
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
  // The first hook starts a thread that polls for failures. Without the thread, a rank that makes
  // no call would not detect a failure, and the other ranks may be waiting for that rank.
  void add(std::int64_t id, c10d::AbortHook hook);
  void remove_completion(std::int64_t id);
  void remove_abort(std::int64_t id);

  // Registers a call in flight. If no thread polls its Work, the hooks' thread polls it before it
  // calls the abort hooks.
  void started(const c10::intrusive_ptr<c10d::Work>& work);
  // Both unregister the call, and ignore other calls.
  void completed(std::uint64_t key);  // the call has not failed
  void forget(std::uint64_t key);

  // Wakes the thread, which calls the abort hooks if the World has failed. The caller must not call
  // them itself: PyTorch's dump takes a second, and may wait for Python's lock.
  void look() { changed_.notify_all(); }
  // Makes the thread call the abort hooks.
  void abort();
  // Returns when pending abort hooks are done. The caller must not hold Python's lock.
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
