// Prepared: the description of a call, which the call's task, the recorder and errors point to; and
// what communicators of the same ranks know of their calls. They do not know addresses, nor how a
// call is run.
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
  std::uint32_t ports;  // Core::port_set
  auto operator<=>(const PlanKey&) const = default;
};

struct PickKey {
  Collective collective;
  int size_class;
  bool deterministic;
  auto operator<=>(const PickKey&) const = default;
};

// What communicators of the same ranks, in the same order, share.
struct GroupCache {
  std::map<PlanKey, std::unique_ptr<Plan>> plans;
  // The key has the root, as the best candidate must not depend on who called first on this rank.
  std::map<std::pair<PickKey, Rank>, std::vector<Candidate>> candidates;
  // Why an algorithm leaves its rails, by root and determinism; empty where it keeps to them.
  std::map<std::tuple<const Algorithm*, Rank, bool>, std::string> breaches;
  bool proved = false;  // prove_rails() has run
};

// The description of a call: all that follows from its arguments, except its addresses and its
// number. It does not change, and is found by its arguments: calls that repeat each other share it,
// and a task points to that of its call. A communicator keeps that of each collective's last call,
// since the next call mostly has the same arguments; of a collective with a root, of the last call
// with each of kKeptRoots roots, since roots often take turns.
inline constexpr unsigned kKeptRoots = 4;
struct Prepared {
  int users = 0;  // of PreparedRef
  struct Arguments {
    std::uint64_t selection = 0;        // Core::selection; 0: of no call
    const Algorithm* forced = nullptr;  // null: auto
    std::size_t count = 0;
    Rank root = 0;
    DType type = DType::kFloat32;
    RedOp op = RedOp::kSum;
    bool in_place = false, deterministic = false;
    bool operator==(const Arguments&) const = default;
  } of;
  std::size_t total_bytes = 0;
  // What the call reads and writes, and where in each of the two buffers one and the same byte lies
  // in a call in place.
  std::size_t in_bytes = 0, out_bytes = 0, in_at = 0, out_at = 0;
  bool board = false, empty = false;
  Head head;  // unsealed, without its number: see GroupState::head_of()
  CallDescriptor what;
  book::Record packed;  // of `what`
  const Algorithm* algorithm = nullptr;
  const Plan* plan = nullptr;  // null: the call needs none
  Slicing slicing;
  bool timed = true;  // the time of the call says something of the algorithm

  // After repeated_by(): whether what it does not compare is the same, too.
  bool holds(std::uint64_t selection, const Algorithm* forced, bool in_place,
             bool deterministic) const {
    return of.selection == selection && of.forced == forced && of.in_place == in_place &&
           of.deterministic == deterministic;
  }
  // Whether a call has the arguments of the last one, and is right like that: of other addresses at
  // most, of buffers that do not overlap. Then sets `in_place`.
  bool repeated_by(const Call& call, Rank root, bool& in_place) const {
    if (of.selection == 0 || of.count != call.count || of.type != call.type || of.op != call.op ||
        of.root != root || call.is_vector || call.op == RedOp::kPreMulSum)
      return false;
    const auto in = reinterpret_cast<std::uintptr_t>(call.in);
    const auto out = reinterpret_cast<std::uintptr_t>(call.out);
    if ((in_bytes && !in) || (out_bytes && !out)) return false;
    if (in_bytes == 0 || out_bytes == 0) {
      in_place = of.in_place;
      return true;
    }
    in_place = in + in_at == out + out_at;
    return in_place || in >= out + out_bytes || out >= in + in_bytes;
  }
};

// Keeps a Prepared. The core's mutex guards the count of its users.
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
  // Points to an empty one that nothing else points to.
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
