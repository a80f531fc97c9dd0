// Profiles (coll/select/profile.h): what parse() takes comes out of text() the same; the rest is an
// Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "coll/select/profile.h"
#include "topo/base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto p =
        weft::Profile::parse(std::string_view(reinterpret_cast<const char*>(data), size));
    const auto q = weft::Profile::parse(p.text());
    if (q.text() != p.text()) std::abort();
  } catch (const weft::Error&) {
  }
  return 0;
}
