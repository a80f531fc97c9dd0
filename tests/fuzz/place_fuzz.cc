// What the other ranks say of their places: the decoder refuses it with Error, or it survives
// encoding, and the topology of such places can be asked for everything.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "topo/topology.h"

namespace {

void require(bool truth) {
  if (!truth) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Place place = decode_place(text);
    require(encode(decode_place(encode(place))) == encode(place));
    Place other = place;
    other.host += "'";
    const Topology topology({place, place, other});
    for (Rank r = 0; r < topology.nranks(); ++r) {
      require(topology.host(r) >= 0 && topology.host(r) < topology.nhosts());
      require(topology.rail(r) >= 0 && topology.rail(r) < topology.nrails());
    }
  } catch (const Error&) {
  }
  return 0;
}
