// WEFT_FAULT as people write it: a fault, or an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topo/base/status.h"
#include "transport/fault.h"

namespace {

void require(bool truth) {
  if (!truth) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const weft::Fault f =
        weft::fault_from(std::string_view(reinterpret_cast<const char*>(data), size));
    require(f.nth >= 1);
    require(f.rank >= weft::kNoRank && f.rail >= -1);
  } catch (const weft::Error&) {
  }
  return 0;
}
