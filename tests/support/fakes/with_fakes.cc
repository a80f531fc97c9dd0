// Linked into `weft`, makes the test program weft_with_fakes with two more devices:
// WEFT_DEVICE=fake, and fake-nic, whose memory RDMA NICs reach, too.
#include <string_view>

#include "support/fakes/fake_device.h"
#include "transport/gpu/device.h"

namespace weft {
namespace {

Device* make_fake(std::string_view name) {
  if (name != "fake" && name != "fake-nic") return nullptr;
  fake_device()->give_nics(name == "fake-nic");
  put_fake_nics_on_rails();
  return fake_device();
}

[[maybe_unused]] const bool kFakesAreSet = (set_device_factory(make_fake), true);

}  // namespace
}  // namespace weft
