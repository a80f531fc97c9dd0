// Random changes to the schedules of a correct algorithm. Schedules that the checker accepts must
// give the right bits on a simulated fabric, with messages delayed, reordered, lent or not; a
// rejected one must be rejected with a message. An input selects the algorithm, the shape, and the
// changes.
// runs: 4000
// labels: sim
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "coll/schedule/check.h"
#include "coll/schedules.h"
#include "coll/storm_call.h"
#include "support/jobs/simulate_job.h"

namespace {

using namespace weft;

// Reads the input as small numbers; zeros beyond its end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool any() const { return at_ < size_; }
  int below(int n) { return any() ? data_[at_++] % n : 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

void change(std::vector<Schedule>& all, Bytes& in) {
  Schedule& s = all[static_cast<std::size_t>(in.below(static_cast<int>(all.size())))];
  const int kind = in.below(9), length = static_cast<int>(s.steps.size());
  if (length == 0) return;
  const int i = in.below(length);
  const auto at = s.steps.begin() + i;
  switch (kind) {
    case 0:
      s.steps.erase(at);
      break;
    case 1:
      s.steps.insert(at, Step(*at));
      break;
    case 2:
      if (i + 1 < length) std::swap(*at, *(at + 1));
      break;
    case 3:
      at->peer = in.below(s.nranks);
      break;
    case 4:
      at->at.first = in.below(s.nchunks + 1);
      break;
    case 5:
      at->at.count = in.below(s.nchunks + 2);
      break;
    case 6:
      at->channel = in.below(3);
      break;
    case 7:
      at->op = static_cast<Op>(in.below(3));
      break;
    default: {
      const Step step = *at;
      s.steps.erase(at);
      s.steps.insert(s.steps.begin() + in.below(length), step);
    }
  }
}

// Adds a transfer that the algorithm does not have.
void add_transfer(std::vector<Schedule>& all, Bytes& in) {
  const int n = static_cast<int>(all.size());
  if (n < 2) return;
  const Rank from = in.below(n), to = (from + 1 + in.below(n - 1)) % n;
  Schedule &a = all[static_cast<std::size_t>(from)], &b = all[static_cast<std::size_t>(to)];
  const int first = in.below(a.nchunks), channel = in.below(3);
  const Chunks at{first, 1 + in.below(a.nchunks - first)};
  const auto put = [&](Schedule& s, Step step) {
    s.steps.insert(s.steps.begin() + in.below(static_cast<int>(s.steps.size()) + 1), step);
  };
  put(a, {Op::kSend, to, channel, at});
  put(b, {in.below(2) ? Op::kRecv : Op::kRecvReduce, from, channel, at});
}

[[noreturn]] void fail(const weft::testing::StormCall& memory, const std::string& why) {
  std::fprintf(stderr, "%s: accepted by the checker, but %s\n", memory.text().c_str(), why.c_str());
  for (const Schedule& s : memory.call().schedules) std::fputs(to_string(s).c_str(), stderr);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes in(data, size);
  const Algorithm& algorithm =
      algorithms()[static_cast<std::size_t>(in.below(static_cast<int>(algorithms().size())))];
  const int hosts = 1 + in.below(4);
  Shape shape = weft::testing::uniform(hosts, 1 + in.below(hosts > 2 ? 2 : 4));
  shape.root = in.below(shape.nranks);
  if (!algorithm.applies(shape)) return 0;
  const DType type = kAllDTypes[in.below(static_cast<int>(std::size(kAllDTypes)))];
  const RedOp op = in.below(2) ? RedOp::kMax : RedOp::kSum;
  const auto count = static_cast<std::size_t>(1 + in.below(250));
  const bool in_place = in.below(2);
  SimJobOptions options;
  options.fabric.seed = 1 + static_cast<std::uint64_t>(in.below(250));
  options.fabric.delay_us_max = 20.0 * in.below(3);
  options.fabric.reorder = options.fabric.delay_us_max > 0;
  options.fabric.views = in.below(2);
  options.fabric.eager_below = in.below(2) ? SIZE_MAX : 0;
  options.tuning.host_slice_min = options.tuning.rail_slice_min = 64;
  options.tuning.host_slice_max = options.tuning.rail_slice_max = 256;
  for (int h = 0; h < hosts; ++h)
    for (std::size_t l = 0; l < shape.hosts[static_cast<std::size_t>(h)].size(); ++l)
      options.fabric.host_of_rank.push_back(h);

  auto schedules = weft::testing::build_all(algorithm, shape);
  for (int changes = 0; in.any() && changes < 8; ++changes)
    in.below(4) ? change(schedules, in) : add_transfer(schedules, in);
  if (!check(algorithm.collective, schedules, {.credits = 0, .root = shape.root}).empty()) return 0;

  weft::testing::StormCall memory(algorithm, std::move(schedules), shape, type, op, count,
                                  in_place);
  memory.fill();
  try {
    SimJob job(options);
    const auto outcomes = job.run({&memory.call(), 1});
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      if (!outcomes[r].status.ok()) fail(memory, outcomes[r].status.to_string());
      if (const std::string wrong = memory.wrong(r); !wrong.empty())
        fail(memory, "rank " + std::to_string(r) + ": " + wrong);
    }
    if (job.fabric().views_lent() != 0) fail(memory, "views are still lent");
  } catch (const std::exception& e) {
    fail(memory, e.what());
  }
  return 0;
}
