// The texts that errors, traces and diagnoses print for a call. They contain only what the
// descriptor holds, so they need no communicator.
#include "coll/call_descriptor.h"

#include <fmt/format.h>

namespace weft {

std::string type_name(DType type) {
  switch (type) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    default:
      return name(type);
  }
}

std::string title(const CallDescriptor& c) {
  if (!c.message)
    return fmt::format("{}{}{} #{}", c.replay ? "replayed " : "", name(c.collective),
                       c.is_vector ? "_v" : "", c.sequence);
  return fmt::format("{} #{} {} rank {}", c.sends ? "send" : "recv", c.sequence,
                     c.sends ? "to" : "from", c.root);
}

std::string full_title(const CallDescriptor& c) {
  std::string text = title(c);
  if (c.comm != 0) text += fmt::format(" of communicator {}", c.comm);
  if (c.comm != 0 && c.members != 0)
    text += fmt::format(" ({} ranks, first {})", c.members, c.leader);
  return text;
}

std::string quantity(const CallDescriptor& c) {
  if (c.collective == Collective::kBarrier) return "no arguments";
  if (c.message) return fmt::format("{} bytes", c.count);
  return fmt::format("{} x {}", c.count, type_name(c.type));
}

std::string arguments(const CallDescriptor& c, bool digest) {
  std::string text = quantity(c);
  if (c.is_vector && digest)
    text += by_pairs(c) ? " sent" : fmt::format(" in all (digest of the counts {:06x})", c.digest);
  if (reduces(c.collective)) text += fmt::format(", {}", name(c.op));
  if (c.codec != Codec::kNone) text += fmt::format(", {} blocks", name(c.codec));
  if (rooted(c.collective)) text += fmt::format(", root {}", c.root);
  return text;
}

}  // namespace weft
