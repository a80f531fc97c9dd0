// A transport may write to posted memory until it is destroyed: UCX still receives messages while
// it flushes. A decorator with its own posted memory must therefore destroy the transport first.
// labels: sim
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "transport/decorator.h"
#include "transport/integrity/checked.h"
#include "transport/rails/rails.h"
#include "transport/sim/rails.h"
#include "transport/sim/sim.h"

namespace weft {
namespace {

// Records whether `part`, a member of the decorator, still existed when the transport was
// destroyed.
class Ending final : public Decorator {
 public:
  Ending(std::unique_ptr<Transport> inner, std::weak_ptr<int> part, bool& in_time)
      : Decorator(std::move(inner)), part_(std::move(part)), in_time_(in_time) {}
  ~Ending() override { in_time_ = !part_.expired(); }

 private:
  std::weak_ptr<int> part_;
  bool& in_time_;
};

SimFabricOptions two_hosts() {
  SimFabricOptions o;
  o.host_of_rank = {0, 1};
  return o;
}

TEST(Lifetime, RailsOutliveTheirTransports) {
  SimRails fabric(two_hosts(), 2);
  auto part = std::make_shared<int>();
  bool in_time[2] = {};
  std::vector<std::unique_ptr<Transport>> inner;
  for (int r = 0; r < 2; ++r)
    inner.push_back(std::make_unique<Ending>(fabric.transport(0, r), part, in_time[r]));
  auto rails = std::make_unique<Rails>(std::move(inner), fabric.paths(0), 0, 2);
  rails->on_event([part](const RailEvent&) {});
  part.reset();
  rails.reset();
  EXPECT_TRUE(in_time[0]);
  EXPECT_TRUE(in_time[1]);
}

TEST(Lifetime, CheckedOutlivesItsTransport) {
  SimFabric fabric(two_hosts());
  auto part = std::make_shared<int>();
  bool in_time = false;
  auto checked = make_checked_transport(std::make_unique<Ending>(fabric.endpoint(0), part, in_time),
                                        0, 2, [part] {});
  part.reset();
  checked.reset();
  EXPECT_TRUE(in_time);
}

}  // namespace
}  // namespace weft
