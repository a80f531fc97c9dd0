// WEFT_RAILS as people write it: a list of devices of this host, or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "topo/discover.h"

namespace {

void require(bool truth) {
  if (!truth) std::abort();
}

weft::Nic nic(const char* name, bool rdma) {
  weft::Nic nic;
  nic.name = nic.netdev = name;
  nic.rdma = rdma;
  nic.up = true;
  return nic;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  weft::HostDescription host;
  host.nics = {nic("mlx5_0", true), nic("mlx5_1", true), nic("eth0", false), nic("rail0", false),
               nic("lo", false)};
  setenv("WEFT_RAILS", text.c_str(), 1);
  try {
    const auto rails = weft::choose_rails(host);
    require(!rails.empty() && rails.size() <= host.nics.size());
    for (const weft::Nic& rail : rails)
      require(!rail.name.empty() && std::isfinite(rail.rate_gbps) && rail.rate_gbps >= 0);
  } catch (const weft::Error&) {
  }
  return 0;
}
