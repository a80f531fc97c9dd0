// Shapes and schedules of all ranks, for tests.
#pragma once

#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"

namespace weft::testing {

// `hosts` hosts of `per_host` ranks, in rank order.
inline Shape uniform(int hosts, int per_host) {
  Shape shape;
  shape.nranks = hosts * per_host;
  for (int h = 0; h < hosts; ++h) {
    shape.hosts.emplace_back();
    for (int l = 0; l < per_host; ++l) shape.hosts.back().push_back(h * per_host + l);
  }
  return shape;
}

// The same, round robin: rank r is on host r % hosts.
inline Shape round_robin(int hosts, int per_host) {
  Shape shape;
  shape.nranks = hosts * per_host;
  shape.hosts.resize(hosts);
  for (int r = 0; r < shape.nranks; ++r) shape.hosts[r % hosts].push_back(r);
  return shape;
}

// Hosts with these numbers of ranks.
inline Shape is_vector(const std::vector<int>& sizes) {
  Shape shape;
  shape.nranks = 0;
  for (int size : sizes) {
    shape.hosts.emplace_back();
    for (int l = 0; l < size; ++l) shape.hosts.back().push_back(shape.nranks++);
  }
  return shape;
}

inline Shape on_one_host(int n) {
  Shape shape;
  shape.nranks = n;
  return shape;
}

inline std::vector<Schedule> build_all(const Algorithm& algorithm, Shape shape) {
  std::vector<Schedule> schedules;
  for (shape.rank = 0; shape.rank < shape.nranks; ++shape.rank)
    schedules.push_back(algorithm.build(shape));
  return schedules;
}

inline std::string full_name(const Algorithm& algorithm) {
  return std::string(name(algorithm.collective)) + " " + std::string(algorithm.name);
}

}  // namespace weft::testing
