// Ranks as threads of the test, with real transports: run_ranks(4, hosts, options, body).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coll/api/communicator.h"
#include "transport/job/bootstrap.h"

namespace weft::testing {

// One host per element with that number of ranks; `rails` rails over loopback.
inline std::vector<Place> places(const std::vector<int>& ranks_per_host, int rails = 1) {
  std::vector<Place> all;
  for (std::size_t h = 0; h < ranks_per_host.size(); ++h)
    for (int i = 0; i < ranks_per_host[h]; ++i) {
      Place p;
      p.host = "host" + std::to_string(h);
      p.machine = "test";
      Nic lo;
      lo.name = lo.netdev = "lo";
      lo.address = "127.0.0.1";
      lo.up = true;
      p.rails.assign(static_cast<std::size_t>(rails), lo);
      all.push_back(p);
    }
  return all;
}

// Calls body(world) on a thread per rank. An exception fails the test and names the rank.
inline void run_ranks(const std::vector<Place>& where, const WorldOptions& options,
                      const std::function<void(World&)>& body) {
  const int n = static_cast<int>(where.size());
  auto jobs = local_jobs(n);
  std::vector<std::string> errors(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < where.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        World world(std::move(jobs[r]), where[r], options);
        body(world);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  for (int r = 0; r < n; ++r) EXPECT_EQ(errors[static_cast<std::size_t>(r)], "") << "rank " << r;
}

}  // namespace weft::testing
