// Queries libibverbs for data missing in sysfs. Built only if libibverbs was found.
#include "perf/validate/facts/verbs_port.h"

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "transport/loaded/loaded.h"

namespace weft::fabric {

std::optional<int> active_mtu_of(const std::string& device, int port) {
  if (!verbs_library()) return std::nullopt;
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> devices(
      ibv_get_device_list(&count), ibv_free_device_list);
  for (int i = 0; devices && i < count; ++i) {
    ibv_device* const candidate = devices.get()[i];
    if (device != ibv_get_device_name(candidate)) continue;
    const std::unique_ptr<ibv_context, decltype(&ibv_close_device)> context(
        ibv_open_device(candidate), ibv_close_device);
    ibv_port_attr attributes{};
    if (!context || ibv_query_port(context.get(), static_cast<std::uint8_t>(port), &attributes))
      return std::nullopt;
    return 128 << attributes.active_mtu;  // IBV_MTU_256 is 1
  }
  return std::nullopt;
}

}  // namespace weft::fabric
