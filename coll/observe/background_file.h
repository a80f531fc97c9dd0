// Writes a file on a thread of its own, so that a file system that hangs blocks nobody. Does not
// know what it writes.
#pragma once

#include <memory>
#include <string>

namespace weft {

// Writes the whole text to the path: readers of the file see all of it or none. If the path is a
// device or a pipe, writes to it and never replaces it. Logs errors.
void write_whole(const std::string& path, const std::string& text);

class BackgroundFile {
 public:
  // An empty path: no file, and no thread.
  explicit BackgroundFile(std::string path);
  // Waits for the last text to be written, for at most 5 seconds.
  ~BackgroundFile();
  BackgroundFile(const BackgroundFile&) = delete;
  BackgroundFile& operator=(const BackgroundFile&) = delete;

  // Replaces the text of the file soon, without blocking on the file. A newer text replaces one
  // that is still waiting.
  void write(std::string text);
  // What the destructor does; write() does nothing afterwards.
  void close() noexcept;
  explicit operator bool() const { return state_ != nullptr; }

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace weft
