// A rail whose card reaches the memory of the fake device, made of any transport: what is above can
// be tested where there is neither a GPU nor such a card.
//
// As strict as the hardware may be: what it has received, and completed, is not in device memory
// before Device::flush_remote_writes().
#pragma once

#include <memory>

#include "transport/transport.h"

namespace weft {

// `inner` itself unless the fake device is this process's device, and has_nics().
std::unique_ptr<Transport> with_fake_nic(std::unique_ptr<Transport> inner);

}  // namespace weft
