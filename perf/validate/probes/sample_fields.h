// Keys in JSON of what the probes measured. The keys name the units.
#pragma once

#include "perf/validate/facts/json_fields.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

template <>
struct EnumWords<Probe> {
  static std::vector<std::string_view> list() {
    std::vector<std::string_view> all;
    for (int p = 0; p <= static_cast<int>(Probe::kLowLoad); ++p)
      all.emplace_back(name(static_cast<Probe>(p)));
    return all;
  }
  static inline const std::vector<std::string_view> words = list();
};

template <typename A, Of<Port> T>
void fields(A& a, T& port) {
  a("host", port.host);
  a("rail", port.rail);
}

template <typename A, Of<LatencySample> T>
void fields(A& a, T& l) {
  a("samples", l.samples);
  a("min_us", l.min_us);
  a("p50_us", l.p50_us);
  a("p99_us", l.p99_us);
  a("p999_us", l.p999_us);
  a("max_us", l.max_us);
}

template <typename A, Of<StreamSample> T>
void fields(A& a, T& stream) {
  a("source_port", stream.port);
  a("bytes", stream.bytes);
  a("packets", stream.packets);
  a("retransmits", stream.retransmits);
}

}  // namespace weft::fabric
