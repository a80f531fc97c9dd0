// simulate() runs one collective on the simulated fabric: the engine that real transports use, with
// one run per rank, all in one thread and in virtual time.
//
// As a test bed the fabric carries data, and delays, reorders and loses messages by a seed; as a
// predictor it carries no data, and predicts the time of a job of any size. The same arguments
// always give the same result. The simulation uses neither processes nor clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"
#include "coll/select/tuning.h"
#include "coll/sim/one_host.h"
#include "coll/types.h"
#include "transport/sim/sim.h"

namespace weft {

// User buffers of the ranks, for a fabric that carries data. in_place: on every rank, in[r] is rank
// r's own part of out[r]. A buffer that its rank does not read or write may be null.
struct SimBuffers {
  std::vector<const void*> in;
  std::vector<void*> out;
  Reduction op = RedOp::kSum;
  bool in_place = false;
  Rank root = 0;  // for rooted collectives; simulate() with an algorithm uses the shape's
  // The counts of a vector collective, in place of `count`: counts[r] belongs to rank r; in an
  // all_to_all_v rank r sends counts[r][s] elements to rank s.
  std::vector<std::vector<std::size_t>> counts = {};
};

struct SimResult {
  double time_us = 0;  // time at which the last rank completes
  SimStatistics traffic;
  std::string limiting;      // the busiest port or core: "host 3 rail 1 tx"; empty: nothing moved
  double busy_share = 0;     // share of time_us in which `limiting` is busy
  std::uint64_t rounds = 0;  // rounds of the schedule
  std::uint64_t simulated_rounds = 0;  // fewer in simulate_few_rounds()
  std::size_t scratch_bytes = 0;       // maximum over all ranks
  std::uint64_t trace_hash = 0;
};

// Returns a fabric for a shape: host h is shape.hosts[h], and the l-th rank of a host is on rail l
// % rails. rails = 0: one rail for each rank of the largest host. Other options have their default
// values.
SimFabricOptions fabric_of(const Shape& shape, int rails = 0);
// As above, with the links and cores of a machine; the fabric carries no data.
SimFabricOptions fabric_of(const Shape& shape, int rails, const Machine& machine);
// Sets the links and cores of a fabric to those of a machine.
void set_machine(SimFabricOptions& options, const Machine& machine);

// The cost model of a fabric, for `auto` and for the engine of a simulated job.
CostModel model_of(const SimFabricOptions& options);

// Runs a collective of `count` elements (of the message for all_reduce, broadcast and reduce,
// otherwise of a block; none for a barrier). Ranks of a host receive views if options.views is set,
// as through shared memory; ranks of different hosts receive into scratch, as from a network.
//
// Throws Error if the algorithm does not support the shape. Also throws if virtual time stops
// before all ranks have completed (the message names the first waiting rank and its peer), or if a
// failure of the fabric affects the run (the message names the rank that detected it first, and the
// cause).
SimResult simulate(const Algorithm& algorithm, const Shape& shape, std::size_t count, DType type,
                   const SimFabricOptions& options, const Tuning& tuning = {},
                   const SimBuffers& buffers = {});

// Simulates only the ranks of one host, or one rank of each host (see one_host.h), which takes a
// fraction of the work. The time may differ from simulate(): messages that arrive at the same time
// may be processed in another order and, if chunks differ in length, the simulated ranks may have
// longer or shorter chunks than others.
SimResult simulate_one_host(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                            DType type, const SimFabricOptions& options, const OneHost& one_host);
// The requirements of simulate_one_host(); nullopt if neither one host nor one rail represents all:
// there is a root, hosts are unequal, ranks differ in dependencies or order, or the fabric has
// faults on some of them. One host represents all if chunks are equal; one rail represents all if
// each rank of a host has its own rail and exchanges only on it, and chunks are equal or have at
// least kManyElements. Examines the plans of the first rank of every host, of all ranks of the last
// host, and of all peers of simulated ranks.
inline constexpr std::size_t kManyElements = 1024;
std::optional<OneHost> one_host_of(const Algorithm& algorithm, const Shape& shape,
                                   std::size_t count, DType type, const SimFabricOptions& options);

// As simulate(), or as simulate_one_host() if one_host is given, with fewer rounds. For a message
// of at least kManyRounds per lane it simulates the first kFewRounds per lane, then one more, and
// assumes that each further round takes the difference. Later rounds may delay each other more or
// less than these, by up to 15 % of the time. With timed events, or if there are few rounds, it
// simulates all.
inline constexpr int kFewRounds = 2, kManyRounds = 8;
SimResult simulate_few_rounds(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                              DType type, const SimFabricOptions& options,
                              const OneHost* one_host = nullptr);

// As simulate(), for any schedules: schedules[r] belongs to rank r.
SimResult simulate(Collective collective, std::span<const Schedule> schedules, std::size_t count,
                   DType type, const SimFabricOptions& options, const Tuning& tuning = {},
                   const SimBuffers& buffers = {});

// One rank's part in a collective on the fabric, from which tests build jobs. A prepared part must
// not be copied or moved: the call points into `blocks`, and the run into the other members.
struct SimPart {
  Plan plan;
  Call call;
  std::vector<std::size_t> blocks;
  Slicing slicing;
  Run run;
};

// Prepares the parts of all ranks of a communicator: world[r] is the fabric's rank number of rank
// r, and schedules[r] is rank r's schedule. Both links of a rank refer to its only endpoint. The
// caller sets the tags and ids of the calls. Throws Error if the fabric carries data and a rank has
// no buffers.
std::vector<std::unique_ptr<SimPart>> prepare_parts(Collective collective,
                                                    std::span<const Schedule> schedules,
                                                    std::span<const Rank> world, std::size_t count,
                                                    DType type, const SimFabricOptions& options,
                                                    const Tuning& tuning,
                                                    const SimBuffers& buffers);

}  // namespace weft
