// Sends and receives frames over a non-blocking socket. Does not interpret frames.
#include "transport/control/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace weft {

void Channel::close() noexcept {
  fd_.reset();
  out_.clear();
  sent_ = queued_ = 0;
}

void Channel::send(wire::Type type, std::string_view payload) {
  if (!open()) return;
  out_.push_back({wire::encode_frame(type, payload), nullptr});
  queued_ += out_.back().size();
  flush();
}

void Channel::send_gather(std::uint64_t sequence, const std::shared_ptr<const std::string>& bytes) {
  if (!open()) return;
  const std::string number = wire::encode(wire::Numbered{sequence, {}});
  const std::size_t most = wire::kMaxFrameBytes - number.size();
  std::size_t from = 0;
  do {
    const std::size_t now = std::min(most, bytes->size() - from);
    const bool more = from + now < bytes->size();
    Piece piece{wire::encode_header(wire::Type::kGather, number.size() + now, more) + number, bytes,
                from, now};
    queued_ += piece.size();
    out_.push_back(std::move(piece));
    from += now;
  } while (from < bytes->size());
  flush();
}

void Channel::flush() {
  constexpr std::size_t kPieces = 8;
  while (open() && !out_.empty()) {
    std::array<iovec, 2 * kPieces> parts;
    std::size_t count = 0, skip = sent_;
    for (std::size_t i = 0; i < std::min(out_.size(), kPieces); ++i) {
      const Piece& piece = out_[i];
      const auto add = [&](const char* data, std::size_t bytes) {
        const std::size_t past = std::min(skip, bytes);
        skip -= past;
        if (bytes > past) parts[count++] = {const_cast<char*>(data) + past, bytes - past};
      };
      add(piece.head.data(), piece.head.size());
      if (piece.body) add(piece.body->data() + piece.from, piece.bytes);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    // Retries later also if the kernel is out of memory.
    if (sent < 0 &&
        (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM))
      return;
    if (sent < 0) {
      // The peer has closed the connection. The peer's last data may still be unread, so receive()
      // reports the end.
      out_.clear();
      sent_ = queued_ = 0;
      return;
    }
    queued_ -= static_cast<std::size_t>(sent);
    sent_ += static_cast<std::size_t>(sent);
    while (!out_.empty() && sent_ >= out_.front().size()) {
      sent_ -= out_.front().size();
      out_.pop_front();
    }
  }
}

Channel::Got Channel::receive(wire::Frame& frame) {
  if (!open()) return Got::kEnd;
  for (bool read = false;; read = true) {
    switch (decoder_.next(frame)) {
      case wire::Decoder::Result::kFrame:
        return Got::kFrame;
      case wire::Decoder::Result::kMalformed:
        why_ = "malformed frame";
        return Got::kEnd;
      case wire::Decoder::Result::kNeedMore:
        break;
    }
    if (read) return Got::kNothing;
    std::array<char, 65536> bytes;
    ssize_t got = -1;
    do {
      got = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM))
      return Got::kNothing;
    if (got <= 0) {
      // If a process is killed before it has read all data, its kernel resets the connection.
      const bool closed = got == 0 || errno == ECONNRESET;
      why_ = closed ? "connection closed" : std::strerror(errno);
      return Got::kEnd;
    }
    heard_ = true;
    decoder_.feed({bytes.data(), static_cast<std::size_t>(got)});
  }
}

bool Channel::heard() { return std::exchange(heard_, false); }

}  // namespace weft
