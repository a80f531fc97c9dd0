// Runs a parallel command as one rank of a job, or starts the job's ranks on this machine. This
// file is independent of a command's use of its World.
#include "coll/jobs/session.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "coll/runtime/calibrate.h"
#include "coll/runtime/internals.h"
#include "topo/base/exit_code.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {

void section(CLI::App& command, const char* title) { command.option_defaults()->group(title); }

void add_job_flags(CLI::App& command, JobFlags& flags) {
  section(command, "Ranks and fabric");
  command
      .add_option(
          "-N,--ranks", flags.ranks,
          "ranks on this machine; a launcher brings its own (default: a rank per core, 2 to 8; "
          "2 per emulated host)")
      ->check(CLI::Range(1, 4096));
  command.add_option("--hosts", flags.hosts, "emulate this many hosts on this machine")
      ->check(CLI::Range(1, 4096));
  command.add_option("--rails", flags.rails, "emulate this many rails per host")
      ->check(CLI::Range(1, 64));
  command
      .add_option(
          "--transport", flags.transport,
          "shm, tcp, ucx, verbs, or auto: shm inside a host; between hosts verbs where all "
          "rails are RDMA devices, ucx where these have no reliable connections (EFA), else "
          "tcp")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "ucx", "verbs"}))
      ->capture_default_str();
  flags.timeout =
      command
          .add_option("--timeout-ms", flags.timeout_ms, "deadline of every wait (WEFT_TIMEOUT_MS)")
          ->check(CLI::Range(1, 86400000))
          ->capture_default_str();
  command
      .add_option("--rail-gbps", flags.rail_gbps,
                  "rate of a rail in Gb/s (default: WEFT_RAIL_GBPS, else measured)")
      ->check(CLI::PositiveNumber);
  section(command, "Options");
}

int local_ranks(const JobFlags& flags, int cores) {
  const int hosts = std::max(flags.hosts, 1);
  int n = flags.ranks;
  if (n == 0) n = hosts > 1 ? 2 * hosts : std::clamp(cores, 2, 8);
  if (n < hosts)
    throw Error(fmt::format("-N {} with --hosts {}: every host needs at least one rank", n, hosts));
  return n;
}

void check_against_job(const JobFlags& flags, std::string_view launcher, const Topology& topology) {
  const auto refuse = [&](std::string_view flag, int asked, std::string_view what, int has) {
    if (asked != 0 && asked != has)
      throw UsageError(
          fmt::format("{} {}: the job ({}) has {} {}; leave {} out, or start the job that way",
                      flag, asked, launcher, has, what, flag));
  };
  refuse("-N", flags.ranks, "ranks", topology.nranks());
  refuse("--hosts", flags.hosts, "hosts", topology.nhosts());
  refuse("--rails", flags.rails, "rails", topology.nrails());
}

namespace {

bool timeout_given(const JobFlags& flags) {
  return flags.timeout != nullptr && flags.timeout->count() > 0;
}

}  // namespace

WorldOptions world_options(std::string_view command, const JobFlags& flags) {
  WorldOptions options;
  options.transport = flags.transport;
  options.timeout = std::chrono::milliseconds(flags.timeout_ms);
  options.rail_gbps = declared_rail_gbps(flags.rail_gbps);
  if (command == "validate") options.cross_rail = "allow";  // validate tests every algorithm
  // Pipelines and replicas must not cross between rails. validate attributes a pair's result to its
  // rail, so the pair must use only that rail.
  if (command == "train" || command == "spiral" || command == "validate") options.spread = false;
  return options;
}

namespace {

// Every rank is a thread with its own World: the job has no other processes and no rails.
int run_threads(std::string_view command, const JobFlags& flags,
                const std::function<int(World&)>& body) {
  const int n = local_ranks(flags, static_cast<int>(std::thread::hardware_concurrency()));
  auto jobs = local_jobs(n);
  std::vector<int> codes(static_cast<std::size_t>(n), kExitOk);
  std::atomic<bool> said{false};
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < codes.size(); ++r)
    ranks.emplace_back([&, r] {
      try {
        Place here;
        here.host = here.machine = "this process";
        World world(std::move(jobs[r]), here, world_options(command, flags));
        codes[r] = body(world);
      } catch (const std::exception& e) {  // one rank reports the reason
        codes[r] = dynamic_cast<const StatusError*>(&e) != nullptr ? kExitCritical : kExitError;
        if (!said.exchange(true)) fmt::print(stderr, "weft {}: {}\n", command, e.what());
      }
    });
  for (auto& rank : ranks) rank.join();
  return *std::max_element(codes.begin(), codes.end());
}

int run_rank(std::string_view command, const JobFlags& flags,
             const std::function<int(World&)>& body,
             const std::function<void(Rank, const Status&)>& failed) {
  const WorldOptions options = world_options(command, flags);
  if (timeout_given(flags)) setenv("WEFT_TIMEOUT_MS", std::to_string(flags.timeout_ms).c_str(), 1);
  const JobSpec spec = job_from_environment();
  const Rank me = spec.rank;
  const auto fail = [&](const Status& status) {
    if (failed)
      failed(me, status);
    else if (me == speaker(status.rank()) || spec.size == 1)
      fmt::print(stderr, "weft {}: {}\n", command, status.to_string());
    // kInvalidArgument: a rank's arguments or its own code caused the failure, not the fabric
    // (reported below).
    return status.code() == Code::kInvalidArgument ? kExitError : kExitCritical;
  };
  std::unique_ptr<World> world;
  try {
    // validate must start on a fabric with broken links, since its probes locate them.
    world = flags.join              ? flags.join(options)
            : command == "validate" ? Internals::unmeasured(options)
                                    : World::from_environment(options);
    if (!world) return kExitOk;
  } catch (const AssemblyFailed& e) {  // rank 0 knows the missing ranks
    if (!failed) throw;
    if (me != 0) fmt::print(stderr, "weft {}: {}\n", command, e.what());
    const bool set_up = dynamic_cast<const WrongSetUp*>(&e) != nullptr;
    failed(me, Status(set_up ? Code::kInvalidArgument : Code::kPeerFailed, e.what()));
    return set_up ? kExitError : kExitCritical;
  } catch (const StatusError& e) {  // other errors are about the arguments
    return fail(e.status());
  }
  try {
    if (!flags.join) check_against_job(flags, spec.launcher, world->topology());
    return body(*world);
  } catch (const UsageError& e) {
    if (me == 0) fmt::print(stderr, "weft {}: {}\n", command, e.what());
    return kExitError;
  } catch (const JobFailed& e) {
    return fail(e.status());
  } catch (const GatherFailed& e) {
    return fail(Internals::gather_status(*world, e));
  } catch (const std::exception& e) {
    // An operation outside the collectives failed, either because the job failed, or on this rank
    // only; in the second case report it, since the other ranks would wait for this rank.
    if (const Status known = job_of(*world).failure(); !known.ok()) return fail(known);
    const Status status(Code::kInvalidArgument, fmt::format("rank {}: {}", me, e.what()), me);
    job_of(*world).report(status);
    fmt::print(stderr, "weft {}: {}\n", command, status.message());
    return kExitError;
  }
}

}  // namespace

int run_job(std::string_view command, const JobFlags& flags, const std::function<int(World&)>& body,
            const std::function<void(Rank, const Status&)>& failed) {
  if (launched()) return run_rank(command, flags, body, failed);
  if (flags.threads) return run_threads(command, flags, body);
  LaunchOptions options;
  options.ranks = local_ranks(flags, static_cast<int>(std::thread::hardware_concurrency()));
  options.hosts = std::max(flags.hosts, 1);
  options.rails = std::max(flags.rails, 1);
  options.ranks_say_why = true;
  if (timeout_given(flags) || std::getenv("WEFT_TIMEOUT_MS") == nullptr)
    options.timeout = std::chrono::milliseconds(flags.timeout_ms);
  std::fflush(nullptr);
  options.killed_code = kExitCritical;
  options.outlives_killed = flags.outlives_killed;
  options.replacements = flags.replacements;
  const int code = relaunch_self(options);
  const bool ended = code > 128;  // by a signal such as Ctrl-C, which the fabric did not cause
  if (code == kExitNotExecutable || code == kExitNotFound) return kExitError;
  return (code >= kExitOk && code <= kExitError) || ended ? code : kExitCritical;
}

}  // namespace weft
