// Names of codes and texts of statuses.
#include "topo/base/status.h"

namespace weft {

const char* name(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kTimeout:
      return "deadline passed";
    case Code::kPeerFailed:
      return "peer failed";
    case Code::kTransport:
      return "transport error";
    case Code::kMismatch:
      return "ranks disagree";
    case Code::kAborted:
      return "aborted";
    case Code::kCorrupt:
      return "data corrupted";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

const std::string& Status::message() const noexcept {
  static const std::string none;
  return message_ ? *message_ : none;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(name(code_)) + ": " + message();
}

void Status::check() const {
  if (!ok()) throw StatusError(*this);
}

}  // namespace weft
