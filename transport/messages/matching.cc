// Error texts for messages that do not match their receive.
#include "transport/messages/matching.h"

#include <fmt/format.h>

#include "transport/messages/completions.h"

namespace weft {

std::string disagreement(const Transfer& receive, std::size_t bytes) {
  return fmt::format("sent {} bytes where {} were expected{}", bytes, receive.bytes,
                     bytes == receive.bytes ? ", for a different task" : "");
}

Status no_such_rank(Rank rank, std::size_t ranks, const char* wire) {
  return {Code::kInvalidArgument, fmt::format("{}: no rank {} in a job of {}", wire, rank, ranks)};
}

void PeerRecord::disagree(const Transfer& receive, std::size_t bytes, const Head* theirs,
                          const std::string& wire) {
  if (theirs) disputed = *theirs;
  note = {Code::kMismatch, fmt::format("{}: {}: {}", where, wire, disagreement(receive, bytes)),
          rank};
}

}  // namespace weft
