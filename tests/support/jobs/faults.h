// Faults of all transports that are made while this lives: transport/fault.h says which.
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
