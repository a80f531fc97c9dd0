// The thread polls for failures, since weft's C interface has no call that waits for one.
#include "hooks.h"

#include <chrono>
#include <utility>
#include <vector>

namespace weft_torch {
namespace {

constexpr std::chrono::milliseconds kLookEvery{200};

}  // namespace

void Hooks::add(std::int64_t id, c10d::CompletionHook hook) {
  const std::lock_guard lock(mutex_);
  completion_[id] = std::move(hook);
}

void Hooks::add(std::int64_t id, c10d::AbortHook hook) {
  const std::lock_guard lock(mutex_);
  abort_[id] = std::move(hook);
  if (!watcher_.joinable()) watcher_ = std::thread([this] { watch(); });
}

void Hooks::remove_completion(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  completion_.erase(id);
}

void Hooks::remove_abort(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  abort_.erase(id);
}

void Hooks::started(const c10::intrusive_ptr<c10d::Work>& work) {
  const std::lock_guard lock(mutex_);
  if (!completion_.empty()) started_.emplace(work->getCompletionKey(), work);
}

void Hooks::forget(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  started_.erase(key);
}

void Hooks::completed(std::uint64_t key) {
  std::vector<c10d::CompletionHook> hooks;
  {
    const std::lock_guard lock(mutex_);
    if (started_.erase(key) == 0) return;
    for (const auto& [id, hook] : completion_) hooks.push_back(hook);
  }
  for (const auto& hook : hooks) hook({key, std::nullopt});
}

void Hooks::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
}

void Hooks::leave() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void Hooks::watch() {
  std::unique_lock lock(mutex_);
  while (!aborted_ && weft_world_failure(world_) == WEFT_OK) {
    if (leaving_) return;
    changed_.wait_for(lock, kLookEvery);
  }
  lock.unlock();
  tell();
}

void Hooks::tell() {
  std::vector<c10d::AbortHook> hooks;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : abort_) hooks.push_back(hook);
    for (const auto& [key, weak] : started_)
      if (auto work = weak.lock()) works.push_back(std::move(work));
  }
  for (const auto& work : works)
    if (work->isCompleted() && work->isSuccess()) completed(work->getCompletionKey());
  for (const auto& hook : hooks) hook();
}

}  // namespace weft_torch
