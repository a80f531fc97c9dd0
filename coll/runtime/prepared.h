// Prepared: the description of a call, to which the call's task, the recorder and errors point;
// GroupCache: the plans and candidates that communicators of the same ranks share. They hold no
// addresses, and are independent of how a call is run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/observe/recorder.h"
#include "coll/schedule/algorithm.h"
#include "coll/select/choice.h"
#include "coll/types.h"
#include "transport/transport.h"

namespace weft {

struct PlanKey {
  const Algorithm* algorithm;
  Rank root;
  bool in_place, small, premultiplied, deterministic;
  std::uint32_t ports;     // Core::port_set
  bool in_rounds = false;  // packed, but not small
  auto operator<=>(const PlanKey&) const = default;
};

struct PickKey {
  Collective collective;
  int size_class;
  bool deterministic;
  auto operator<=>(const PickKey&) const = default;
};

// Shared by communicators of the same ranks in the same order.
struct GroupCache {
  std::map<PlanKey, std::unique_ptr<Plan>> plans;
  // The key contains the root: the best candidate must not depend on the root of this rank's first
  // call.
  std::map<std::pair<PickKey, Rank>, std::vector<Candidate>> candidates;
  // Why an algorithm breaks the rail contract, by root and determinism; empty if it keeps it.
  std::map<std::tuple<const Algorithm*, Rank, bool>, std::string> breaches;
  bool proved = false;  // prove_rails() has run
};

// The description of a call: everything derived from its arguments, except its addresses and its
// number. It is immutable, and looked up by the arguments; repeated calls share it, and their tasks
// point to it. A communicator keeps the description of each collective's last call, since the next
// call mostly has the same arguments. For a collective with a root, it keeps one for each of
// kKeptRoots roots, since roots often take turns, and as many for messages.
inline constexpr unsigned kKeptRoots = 4;
struct Prepared {
  int users = 0;  // PreparedRefs that point here
  struct Arguments {
    std::uint64_t selection = 0;        // Core::selection; 0: matches no call with a plan
    const Algorithm* forced = nullptr;  // null: auto
    std::size_t count = 0;
    Rank root = 0;
    DType type = DType::kFloat32;
    RedOp op = RedOp::kSum;
    bool in_place = false, deterministic = false;
    // Of calls that run no plan; their `selection` is 0. message: root is the peer's world rank.
    Codec codec = Codec::kNone;
    bool message = false, sends = false;
    bool lane = false, on_device = false, replay = false;  // as in CallDescriptor
    bool operator==(const Arguments&) const = default;
  } of;
  std::size_t total_bytes = 0;
  // The bytes that the call reads and writes, and the offsets at which the two buffers of an
  // in-place call coincide.
  std::size_t in_bytes = 0, out_bytes = 0, in_at = 0, out_at = 0;
  bool board = false, empty = false;
  Head head;  // unsealed, without its number: begin() of a call adds it
  CallDescriptor what;
  book::Record packed;  // pack(what)
  const Algorithm* algorithm = nullptr;
  const Plan* plan = nullptr;  // null: the call needs no plan
  Slicing slicing;
  bool timed = true;  // the call's time is a measurement of the algorithm
};

// A counted reference to a Prepared. The core's mutex guards the count.
class PreparedRef {
 public:
  PreparedRef() = default;
  PreparedRef(const PreparedRef& other) : of_(other.of_) {
    if (of_) ++of_->users;
  }
  PreparedRef& operator=(const PreparedRef& other) {
    if (other.of_) ++other.of_->users;
    drop();
    of_ = other.of_;
    return *this;
  }
  ~PreparedRef() { drop(); }
  void drop() {
    if (of_ && --of_->users == 0) delete of_;
    of_ = nullptr;
  }
  // Makes this the only reference to an empty Prepared.
  Prepared& renew() {
    if (of_ && of_->users == 1) {
      *of_ = Prepared();
    } else {
      drop();
      of_ = new Prepared;
    }
    of_->users = 1;
    return *of_;
  }
  explicit operator bool() const { return of_ != nullptr; }
  const Prepared& operator*() const { return *of_; }
  const Prepared* operator->() const { return of_; }

 private:
  Prepared* of_ = nullptr;
};

}  // namespace weft
