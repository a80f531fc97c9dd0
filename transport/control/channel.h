// One connection of the control plane: frames out, frames in, never blocking. Used under the lock
// of its owner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "transport/control/frames.h"
#include "transport/control/socket.h"

namespace weft {

class Channel {
 public:
  enum class Got { kFrame, kNothing, kEnd };

  Channel() = default;
  Channel(Fd fd, std::size_t max_payload) : fd_(std::move(fd)), decoder_(max_payload) {}

  int fd() const noexcept { return fd_.get(); }
  bool open() const noexcept { return static_cast<bool>(fd_); }
  void close() noexcept;
  void set_max_payload(std::size_t max_payload) { decoder_.set_max_payload(max_payload); }

  // Queues a frame and writes what the socket takes. Does nothing on a closed channel.
  void send(wire::Type type, std::string_view payload);
  // The same for bytes of any size that several channels may share, in as many frames as it takes.
  void send_gather(std::uint64_t sequence, const std::shared_ptr<const std::string>& bytes);
  // Writes what the socket takes; then queued() tells whether to wait for POLLOUT.
  void flush();
  std::size_t queued() const noexcept { return queued_; }

  // The next frame, reading at most once from the socket. kEnd: why() says how the connection
  // ended; frames that came before are returned first.
  Got receive(wire::Frame& frame);
  bool heard();                                        // whether bytes came since the last call
  bool partial() const { return decoder_.partial(); }  // a frame is coming
  const std::string& why() const noexcept { return why_; }

 private:
  struct Piece {
    std::string head;
    std::shared_ptr<const std::string> body;
    std::size_t from = 0, bytes = 0;  // of the body
    std::size_t size() const { return head.size() + bytes; }
  };

  Fd fd_;
  wire::Decoder decoder_{0};
  std::deque<Piece> out_;
  std::size_t sent_ = 0;  // of the first piece
  std::size_t queued_ = 0;
  bool heard_ = false;
  std::string why_;
};

}  // namespace weft
