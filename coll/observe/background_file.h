// Writes a file by a thread of its own, so that a file system that hangs keeps nobody waiting. It
// does not know what it writes.
#pragma once

#include <memory>
#include <string>

namespace weft {

// Writes the whole text to the path: those who look for the file find all of it or none. Where the
// path names a device or a pipe, writes to it and never replaces it. Logs an error.
void write_whole(const std::string& path, const std::string& text);

class BackgroundFile {
 public:
  // An empty path: no file, and no thread.
  explicit BackgroundFile(std::string path);
  // Waits for the last text to be written, for 5 seconds at most.
  ~BackgroundFile();
  BackgroundFile(const BackgroundFile&) = delete;
  BackgroundFile& operator=(const BackgroundFile&) = delete;

  // Replaces the text of the file soon, and never waits for the file. A text that is given while an
  // earlier one waits takes its place.
  void write(std::string text);
  // The destructor's work; write() does nothing afterwards.
  void close() noexcept;
  explicit operator bool() const { return state_ != nullptr; }

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's, too, which may outlive this object
};

}  // namespace weft
