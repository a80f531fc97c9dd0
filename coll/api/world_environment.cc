// World::from_environment() and from_id(): join the launcher's job, or that of a unique id, and
// read the options in WEFT_* variables.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "coll/api/communicator.h"
#include "coll/runtime/calibrate.h"
#include "coll/runtime/core.h"
#include "coll/select/profile.h"
#include "topo/discover.h"
#include "topo/near.h"
#include "transport/factory/transport_factory.h"
#include "transport/fault.h"
#include "transport/gpu/device.h"
#include "transport/job/bootstrap.h"
#include "transport/job/unique_id.h"

namespace weft {
namespace {

long environment_number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  long value = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc() || at != end || value <= 0)
    throw Error(fmt::format("{}={} is not a positive whole number", name, text));
  return value;
}

bool environment_flag(const char* name, bool otherwise) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  const std::string_view value = text;
  if (value != "0" && value != "1")
    throw Error(fmt::format("{}={} is neither 0 nor 1", name, text));
  return value == "1";
}

// Checks the folder now: otherwise the error would only show at the end, after all the work.
void check_folder_of(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return;
  const auto folder = std::filesystem::path(text).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::is_directory(folder, error))
    throw Error(
        fmt::format("{}={}: there is no folder {}; make it first", name, text, folder.string()));
}

// Joins the job that `describe` returns, and passes the parts of a World to `make`.
template <typename Describe, typename Make>
std::unique_ptr<World> join_job(WorldOptions o, const Describe& describe, const Make& make) {
  o.timeout = std::chrono::milliseconds(
      environment_number("WEFT_TIMEOUT_MS", static_cast<long>(o.timeout.count())));
  o.progress_thread = environment_flag("WEFT_PROGRESS_THREAD", o.progress_thread);
  o.integrity = environment_flag("WEFT_INTEGRITY", o.integrity);
  if (const char* text = std::getenv("WEFT_FAULT")) set_faults(text);
  if (const char* text = std::getenv("WEFT_CROSS_RAIL")) o.cross_rail = text;
  if (const char* text = std::getenv("WEFT_SLOW_PORTS")) o.slow_ports = text;
  o.failover = environment_flag("WEFT_FAILOVER", o.failover);
  o.spread = environment_flag("WEFT_SPREAD", o.spread);
  o.counters = environment_flag("WEFT_COUNTERS", o.counters);
  o.slow = std::chrono::milliseconds(
      environment_number("WEFT_SLOW_MS", static_cast<long>(o.slow.count())));
  o.deterministic = environment_flag("WEFT_DETERMINISTIC", o.deterministic);
  for (const char* name : {"WEFT_TRACE", "WEFT_METRICS", "WEFT_DOCTOR_JSON"}) check_folder_of(name);
  check_named_profile();
  (void)declared_rail_gbps(o.rail_gbps);  // throws before this rank waits for the job
  const JobSpec spec = describe(o);
  Place place = discover_place();
  if (const Device* const d = device(); d && d->chosen() >= 0) set_gpu(place, d->pci(d->chosen()));
  // Emulated rails (weft launch --rails) are the same device several times.
  if (std::getenv("WEFT_EMULATE_RAILS") && !std::getenv("WEFT_RAILS")) {
    const auto rails = static_cast<std::size_t>(environment_number("WEFT_EMULATE_RAILS", 1));
    Nic first;
    first.name = first.netdev = "lo";
    first.address = "127.0.0.1";
    first.up = true;
    place.rails.assign(rails, first);
    place.no_rdma.clear();
  }
  note_libraries(place, o.transport);
  return make(connect(spec), std::move(place), o);
}

JobSpec launched_job(const WorldOptions&) { return job_from_environment(); }

std::unique_ptr<World> measured(std::unique_ptr<Job> job, Place place, const WorldOptions& o) {
  return std::make_unique<World>(std::move(job), std::move(place), o);
}

}  // namespace

std::unique_ptr<World> World::from_environment(const WorldOptions& options) {
  return join_job(options, launched_job, measured);
}

std::string World::unique_id() { return make_unique_id(); }

std::unique_ptr<World> World::from_id(std::string_view id, Rank rank, int size,
                                      const WorldOptions& options) {
  const auto describe = [&](const WorldOptions& o) {
    JobSpec spec = job_from_unique_id(id, rank, size);
    spec.timeout = std::min<std::chrono::milliseconds>(o.timeout, std::chrono::hours(24));
    return spec;
  };
  return join_job(options, describe, measured);
}

std::unique_ptr<World> World::unmeasured(const WorldOptions& options) {
  const auto make = [](std::unique_ptr<Job> job, Place place, const WorldOptions& o) {
    auto core = Core::make(std::move(job), std::move(place), o, 0, true);
    auto world = std::unique_ptr<World>(new World(std::move(core)));
    world->core_->finish_setup();
    return world;
  };
  return join_job(options, launched_job, make);
}

}  // namespace weft
