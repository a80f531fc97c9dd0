// The thread that writes a file; it is detached if its file system does not respond.
#include "coll/observe/background_file.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "topo/base/log.h"
#include "topo/base/mutex.h"
#include "topo/base/status.h"
#include "topo/base/thread.h"
#include "transport/control/hmac.h"

namespace weft {

namespace {
constexpr std::chrono::seconds kLastWrite{5};
}

// Several ranks may write the file at the same time, in containers even with the same pid.
void write_whole(const std::string& path, const std::string& text) {
  std::error_code error;
  const auto there = std::filesystem::status(path, error);
  errno = 0;
  const bool replaces = !std::filesystem::exists(there) || std::filesystem::is_regular_file(there);
  const std::string fresh = replaces ? path + '.' + hex(random_bytes(8)) : path;
  std::ofstream file(fresh);
  file << text;
  file.close();
  error = file ? std::error_code() : std::error_code(errno, std::generic_category());
  if (file && replaces) std::filesystem::rename(fresh, path, error);
  if (file && !error) return;
  log().error("weft: cannot write {}: {}", path, error ? error.message() : "is the disk full?");
  if (replaces) std::filesystem::remove(fresh, error);
}

struct BackgroundFile::State {
  std::string path;
  Mutex mutex;
  std::condition_variable_any changed;
  std::optional<std::string> next WEFT_GUARDED_BY(mutex);
  bool writing WEFT_GUARDED_BY(mutex) = false, ends WEFT_GUARDED_BY(mutex) = false;
  std::thread thread;

  void serve() {
    MutexLock lock(mutex);
    for (;;) {
      changed.wait(lock, [&]() WEFT_REQUIRES(mutex) { return next || ends; });
      if (!next) return;
      const std::string text = *std::exchange(next, std::nullopt);
      writing = true;
      lock.unlock();
      write_whole(path, text);
      lock.lock();
      writing = false;
      changed.notify_all();
    }
  }
};

BackgroundFile::BackgroundFile(std::string path) {
  if (path.empty()) return;
  state_ = std::make_shared<State>();
  state_->path = std::move(path);
}

BackgroundFile::~BackgroundFile() { close(); }

void BackgroundFile::write(std::string text) {
  if (!state_) return;
  const MutexLock lock(state_->mutex);
  state_->next = std::move(text);
  state_->changed.notify_all();
  if (state_->thread.joinable()) return;
  try {
    state_->thread = start_thread("the thread of a file", [state = state_] { state->serve(); });
  } catch (const Error& error) {
    log().error("weft: {} is not written: {}", state_->path, error.what());
  }
}

void BackgroundFile::close() noexcept {
  const std::shared_ptr<State> state = std::exchange(state_, nullptr);
  if (!state || !state->thread.joinable()) return;
  bool written = false;
  {
    MutexLock lock(state->mutex);
    state->ends = true;
    state->changed.notify_all();
    written = state->changed.wait_for(lock, kLastWrite, [&]() WEFT_REQUIRES(state->mutex) {
      return !state->next && !state->writing;
    });
    state->next.reset();
  }
  if (written) return state->thread.join();
  log().error("weft: {} is not written: its file system does not respond", state->path);
  state->thread.detach();
}

}  // namespace weft
