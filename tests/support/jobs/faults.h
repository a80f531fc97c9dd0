// While alive, injects a fault (transport/fault.h) into all transports.
#pragma once

#include <string>
#include <utility>

#include "transport/fault.h"

namespace weft::testing {

class Faults {
 public:
  explicit Faults(std::string text) { set_faults(std::move(text)); }
  ~Faults() { set_faults(""); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

}  // namespace weft::testing
