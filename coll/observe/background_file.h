// Writes a file on its own thread, so that a file system that hangs blocks no other thread. This
// file is independent of the file's content.
#pragma once

#include <memory>
#include <string>

namespace weft {

// Writes the whole text to the path atomically: a reader of the file gets the whole text or the
// previous one. A device or a pipe is written to, and never replaced. Logs errors.
void write_whole(const std::string& path, const std::string& text);

class BackgroundFile {
 public:
  // With an empty path, no file is written and no thread is started.
  explicit BackgroundFile(std::string path);
  // Waits for at most 5 seconds until the last text is written.
  ~BackgroundFile();
  BackgroundFile(const BackgroundFile&) = delete;
  BackgroundFile& operator=(const BackgroundFile&) = delete;

  // Queues the text that replaces the content of the file, without blocking on the file. A newer
  // text replaces one that is still queued.
  void write(std::string text);
  // Waits as the destructor does; later calls of write() have no effect.
  void close() noexcept;
  explicit operator bool() const { return state_ != nullptr; }

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace weft
