// How well a fault at one place explains that place's flows. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perf/validate/locate/attribution.h"

namespace weft::fabric {

struct Fit {
  bool valid = false;
  double level = 0, low = 0, high = 0, gain = 0, confidence = 0;
  int flows = 0;
};

class Fitter {
 public:
  // `places`: number of tested places, for the Bonferroni correction.
  Fitter(const Shape& shape, std::span<const Observation> observations, const Scale& scale,
         double places)
      : shape_(shape), observations_(observations), scale_(scale), places_(places) {}

  double places() const { return places_; }
  void set_places(double places) { places_ = places; }
  // Sets whether to accept places that are likelier than chance but not certain.
  void set_unsure(bool unsure) { unsure_ = unsure; }
  const Observation& observation(int s) const { return observations_[static_cast<std::size_t>(s)]; }
  bool bad(const Observation& s) const {
    return scale_.counted ? s.value > 0 : s.value >= scale_.threshold;
  }
  // Fits the place to these observations, which are flows of the place.
  Fit fit(CausePlace place, int port, const std::vector<int>& observations) const;

 private:
  Fit fit_graded(const std::vector<int>& observations, CausePlace place) const;
  bool by_chance(const std::vector<int>& observations, CausePlace place) const;
  Fit fit_counted(const std::vector<int>& observations, CausePlace place) const;

  const Shape& shape_;
  std::span<const Observation> observations_;
  const Scale& scale_;
  double places_;
  bool unsure_ = false;
};

}  // namespace weft::fabric
