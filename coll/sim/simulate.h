// simulate() runs one collective on the simulated fabric: the unchanged engine of the real
// transports, one run per rank, all in one thread and in virtual time.
//
// As a test bed the fabric carries bytes, and delays, reorders and loses them by seed; as a
// predictor it carries none and shows how long a job of any size takes. The same arguments always
// give the same result. The simulation knows neither processes nor clocks.
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
  Rank root = 0;  // for rooted collectives; simulate() with an algorithm takes the shape's
  // The counts of a vector collective, in place of `count`: counts[r] belongs to rank r; in an
  // all_to_all_v counts[r][s] is what rank r sends to rank s.
  std::vector<std::vector<std::size_t>> counts = {};
};

struct SimResult {
  double time_us = 0;  // until the last rank was done
  SimStatistics traffic;
  std::string limiting;      // the busiest port or core: "host 3 rail 1 tx"; empty: nothing moved
  double busy_share = 0;     // share of time_us in which `limiting` is busy
  std::uint64_t rounds = 0;  // rounds of the schedule
  std::uint64_t simulated_rounds = 0;  // fewer in simulate_few_rounds()
  std::size_t scratch_bytes = 0;       // the most on any rank
  std::uint64_t trace_hash = 0;
};

// Returns a fabric for a shape: host h is shape.hosts[h], the l-th rank of a host is on rail
// l % rails. rails = 0: one for each rank of the largest host. Other options keep their defaults.
SimFabricOptions fabric_of(const Shape& shape, int rails = 0);
// The same with the links and cores of a machine; carries no data.
SimFabricOptions fabric_of(const Shape& shape, int rails, const Machine& machine);
// Sets the links and cores of a fabric to those of a machine.
void set_machine(SimFabricOptions& options, const Machine& machine);

// The cost model of a fabric, used by `auto` and by the engine of a simulated job.
CostModel model_of(const SimFabricOptions& options);

// Runs a collective of `count` elements (of the message for all_reduce, broadcast and reduce,
// otherwise of a block; none for a barrier). Ranks of a host receive views if options.views is set,
// as through shared memory; ranks of different hosts receive into scratch, as from a network.
//
// Throws Error if the algorithm does not apply to the shape; if virtual time stops before all ranks
// are done, naming the first rank that waits and its peer; if a failure of the fabric affects the
// run, naming the rank that noticed it first and the cause.
SimResult simulate(const Algorithm& algorithm, const Shape& shape, std::size_t count, DType type,
                   const SimFabricOptions& options, const Tuning& tuning = {},
                   const SimBuffers& buffers = {});

// The same with the ranks of one host, or one rank of each (see one_host.h): a fraction of the
// work. The time differs by the order of messages that arrive at the same moment and, if chunks
// differ in length, by how much those of the first ranks are longer or shorter.
SimResult simulate_one_host(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                            DType type, const SimFabricOptions& options, const OneHost& one_host);
// What simulate_one_host() needs; nothing if neither one host represents all nor one rail: there is
// a root, hosts are unequal, ranks differ in dependencies or order, or the fabric disturbs some of
// them. One host represents all if chunks are equal; one rail if each rank of a host has its own
// rail and keeps to it, and chunks are equal or have at least kManyElements. Examines the plans of
// the first rank of every host, of all ranks of the last host, and of all peers of simulated ranks.
inline constexpr std::size_t kManyElements = 1024;
std::optional<OneHost> one_host_of(const Algorithm& algorithm, const Shape& shape,
                                   std::size_t count, DType type, const SimFabricOptions& options);

// The same, or simulate_one_host() if one_host is given. For a message of at least kManyRounds per
// lane it simulates the first kFewRounds per lane, then one more: each further round is assumed to
// take the difference. Later rounds may wait for each other more or less than these, which is up to
// 15 % of the time. With timed events, or if rounds are few, all are simulated.
inline constexpr int kFewRounds = 2, kManyRounds = 8;
SimResult simulate_few_rounds(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                              DType type, const SimFabricOptions& options,
                              const OneHost* one_host = nullptr);

// The same for any schedules: schedules[r] belongs to rank r.
SimResult simulate(Collective collective, std::span<const Schedule> schedules, std::size_t count,
                   DType type, const SimFabricOptions& options, const Tuning& tuning = {},
                   const SimBuffers& buffers = {});

// One rank's part in a collective on the fabric; tests build jobs of such parts. A prepared part
// must not be copied or moved: the call points into `blocks`, and the run into the other members.
struct SimPart {
  Plan plan;
  Call call;
  std::vector<std::size_t> blocks;
  Slicing slicing;
  Run run;
};

// Prepares the parts of all ranks of a communicator: world[r] is the fabric's rank of rank r, and
// schedules[r] is rank r's schedule. Both links of a rank are its one endpoint. The caller sets the
// tags and ids of the calls. Throws Error if the fabric carries data and a rank has no buffers.
std::vector<std::unique_ptr<SimPart>> prepare_parts(Collective collective,
                                                    std::span<const Schedule> schedules,
                                                    std::span<const Rank> world, std::size_t count,
                                                    DType type, const SimFabricOptions& options,
                                                    const Tuning& tuning,
                                                    const SimBuffers& buffers);

}  // namespace weft
