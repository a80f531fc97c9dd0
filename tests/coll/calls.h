// Runs Questions (reference.h) on a communicator over real transports, in several layouts.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "support/jobs/call.h"
#include "support/jobs/ranks.h"
#include "tests/coll/reference.h"
#include "transport/memory/memory.h"
#include "transport/ucx/ucx.h"

namespace weft::testing {

// Allocates with weft::alloc.
class SharedMemory final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override { return weft::alloc(bytes); }
  void do_deallocate(void* p, std::size_t, std::size_t) override { weft::free(p); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};
inline std::pmr::memory_resource* shared_memory() {
  static SharedMemory memory;
  return &memory;
}

inline Status call(Communicator& comm, const Question& q, const RankData& d) {
  const Reduction op = q.reduction();
  if (!q.is_vector()) return call(comm, q.collective, d.in, d.out, q.count, q.type, op, q.root);
  const bool pairs = q.collective == Collective::kAllToAll;
  std::vector<std::size_t> blocks, received;
  for (int r = 0; r < q.n; ++r) {
    blocks.push_back(pairs ? q.block(comm.rank(), r) : q.block(r));
    received.push_back(q.block(r, comm.rank()));
  }
  switch (q.collective) {
    case Collective::kAllGather:
      return comm.all_gather_v(d.in, d.out, blocks, q.type);
    case Collective::kReduceScatter:
      return comm.reduce_scatter_v(d.in, d.out, blocks, q.type, op);
    case Collective::kGather:
      return comm.gather_v(d.in, d.out, blocks, q.type, q.root);
    case Collective::kScatter:
      return comm.scatter_v(d.in, d.out, blocks, q.type, q.root);
    default:
      return comm.all_to_all_v(d.in, blocks, d.out, received, q.type);
  }
}

// Runs one question on this rank and compares every byte of the result.
inline void expect_right(Communicator& comm, const Question& q, const std::string& what,
                         std::size_t shift = 0,
                         std::pmr::memory_resource* memory = std::pmr::get_default_resource()) {
  const RankData data(q, comm.rank(), shift, memory);
  const Status s = call(comm, q, data);
  ASSERT_TRUE(s.ok()) << what << ", " << q.words() << ": " << s.to_string();
  ASSERT_EQ(data.check(), "") << what << ", " << q.words();
}

struct LayoutSetting {
  const char* name;
  std::vector<int> hosts;  // ranks on each host
  int rails;
  const char* transport;
};
inline void PrintTo(const LayoutSetting& s, std::ostream* os) { *os << s.name; }

// A fixture over layouts in which every algorithm may run.
class InLayouts : public ::testing::TestWithParam<LayoutSetting> {
 protected:
  void SetUp() override {
    if (needs_ucx() && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
  }
  static bool needs_ucx() { return std::string(GetParam().transport) == "ucx"; }
  static void run(const std::function<void(World&)>& body) {
    WorldOptions options;
    options.cross_rail = "allow";  // run every algorithm
    options.transport = GetParam().transport;
    options.timeout = std::chrono::milliseconds(20000);
    run_ranks(places(GetParam().hosts, GetParam().rails), options, body);
  }
};

}  // namespace weft::testing
