// One connection of the control plane; sends and receives frames and never blocks. Not thread-safe:
// the owner locks.
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

  // Queues a frame and writes the bytes that the socket accepts. No effect on a closed channel.
  void send(wire::Type type, std::string_view payload);
  // Queues a kGather of any size, cut into frames; several channels may share `bytes`.
  void send_gather(std::uint64_t sequence, const std::shared_ptr<const std::string>& bytes);
  // Writes the bytes that the socket accepts. The owner waits for POLLOUT while queued() is not 0.
  void flush();
  std::size_t queued() const noexcept { return queued_; }

  // Returns the next frame; reads from the socket at most once. kEnd follows the last frame that
  // arrived before the connection ended; why() returns the reason.
  Got receive(wire::Frame& frame);
  bool heard();                                        // whether bytes arrived since the last call
  bool partial() const { return decoder_.partial(); }  // an incomplete frame is buffered
  const std::string& why() const noexcept { return why_; }

 private:
  struct Piece {
    std::string head;
    std::shared_ptr<const std::string> body;
    std::size_t from = 0, bytes = 0;  // the piece's range of the body
    std::size_t size() const { return head.size() + bytes; }
  };

  Fd fd_;
  wire::Decoder decoder_{0};
  std::deque<Piece> out_;
  std::size_t sent_ = 0;  // bytes of the first piece that are sent
  std::size_t queued_ = 0;
  bool heard_ = false;
  std::string why_;
};

}  // namespace weft
