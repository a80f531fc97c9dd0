// The two ways in which weft reports errors.
//
// Functions that set up (configuration, devices, communicators) throw weft::Error. Functions that
// run (collectives, transfers) return weft::Status, which is cheap on success.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

// The number of a process in a job or a communicator, from 0; kNoRank: none.
using Rank = std::int32_t;
inline constexpr Rank kNoRank = -1;

// Thrown during setup. The message contains the wrong value and a remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Code : std::uint8_t {
  kOk = 0,
  kInvalidArgument,  // an argument of the call is invalid
  kTimeout,          // a deadline passed without a known dead rank
  kPeerFailed,       // a rank died, stopped, or was cut off: Status::rank
  kTransport,        // a device or the kernel reported an error
  kMismatch,         // the ranks' arguments or calls differ
  kAborted,          // the communicator was aborted before
  kCorrupt,          // data arrived corrupted, also after retransmissions
  kInternal,         // a bug in weft
};

const char* name(Code code) noexcept;

// The result of an operation. `rank` is the rank that caused a failure (a world rank), if it is
// known.
class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message, Rank rank = kNoRank)
      : code_(code),
        rank_(rank),
        message_(std::make_shared<const std::string>(std::move(message))) {}

  bool ok() const noexcept { return code_ == Code::kOk; }
  Code code() const noexcept { return code_; }
  Rank rank() const noexcept { return rank_; }
  const std::string& message() const noexcept;
  // "peer failed: rank 3 on host b: connection closed"
  std::string to_string() const;
  // Throws StatusError unless ok().
  void check() const;

 private:
  Code code_ = Code::kOk;
  Rank rank_ = kNoRank;
  std::shared_ptr<const std::string> message_;  // null: empty message
};

// A failed Status as an exception; what() is Status::to_string().
class StatusError : public Error {
 public:
  explicit StatusError(Status status) : Error(status.to_string()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

}  // namespace weft
