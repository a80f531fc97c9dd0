// connect() checks the spec, assembles the job and starts its control plane.
#include "transport/job/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/control/frames.h"
#include "transport/job/job_assembly.h"

namespace weft {
namespace {

std::atomic<int> taken_listen_fd{-1};

void check(const JobSpec& spec) {
  if (spec.size < 1 || spec.rank < 0 || spec.rank >= spec.size) {
    throw Error(fmt::format("rank {} of {} ranks does not exist: ranks count from 0 to size - 1",
                            spec.rank, spec.size));
  }
  if (spec.timeout.count() <= 0) {
    throw Error(fmt::format("the timeout of the rendezvous is {} ms: it must be at least 1 ms",
                            spec.timeout.count()));
  }
  if (spec.size == 1) return;
  if (spec.secret.empty()) {
    throw Error("the job has no secret: set WEFT_SECRET to the same random text on every rank");
  }
  if (spec.listen_fd < 0 && spec.address.empty()) {
    throw Error("the address of rank 0 is unknown: set WEFT_ROOT to host:port");
  }
  if (spec.listen_fd < 0 && spec.ports.empty()) {
    throw Error(fmt::format("no port of rank 0 at \"{}\" is known: set WEFT_ROOT to host:port",
                            spec.address));
  }
}

}  // namespace

std::chrono::milliseconds heartbeat_period(std::chrono::milliseconds timeout) {
  using namespace std::chrono_literals;
  return std::clamp<std::chrono::milliseconds>(timeout / 20, 20ms, 250ms);
}

void throw_assembly_failure(const Status& failure) {
  if (failure.code() == Code::kMismatch || failure.code() == Code::kInvalidArgument)
    throw WrongSetUp(failure.message());
  throw Error(failure.message());
}

bool listen_fd_taken(int fd) noexcept { return fd >= 0 && taken_listen_fd.load() == fd; }

std::string Job::key(std::string_view label) const {
  throw Error(fmt::format("this job has no secret to derive a key for \"{}\" from", label));
}

std::vector<std::string> Job::all_to_all(const std::vector<std::string>& mine) {
  std::vector<std::string> for_me;
  for (const std::string& all : all_gather(wire::encode_parts(mine))) {
    auto parts = wire::decode_parts(all, size());
    if (!parts) throw Error(fmt::format("all_to_all: a rank did not pass {} parts", size()));
    for_me.push_back(std::move((*parts)[static_cast<std::size_t>(rank())]));
  }
  return for_me;
}

std::vector<std::string> Job::all_gather_in_group(std::string_view group, std::string_view mine) {
  std::vector<std::string> all =
      all_gather(wire::encode_parts({std::string(group), std::string(mine)}));
  for (std::string& of_rank : all) {
    auto parts = wire::decode_parts(of_rank, 2);
    if (!parts) throw Error("all_gather_in_group: a rank passed no group name");
    of_rank = (*parts)[0] == group ? std::move((*parts)[1]) : std::string();
  }
  return all;
}

std::vector<std::string> Job::gather(std::string_view mine) {
  std::vector<std::string> parts = all_gather(mine);
  if (rank() != 0) parts.clear();
  return parts;
}

std::string Job::scatter(const std::vector<std::string>& parts) {
  const auto size_of_job = static_cast<std::size_t>(size());
  return all_to_all(rank() == 0 ? parts : std::vector<std::string>(size_of_job))[0];
}

std::unique_ptr<Job> connect(const JobSpec& spec) {
  check(spec);
  if (spec.size == 1) return std::move(local_jobs(1).front());
  try {
    if (spec.rank != 0) return make_leaf_job(spec, assemble_leaf(spec));
    if (spec.listen_fd >= 0 && spec.launcher != "id") taken_listen_fd = spec.listen_fd;
    return make_root_job(spec, assemble_root(spec));
  } catch (const AssemblyFailed&) {
    throw;
  } catch (const Error& e) {
    throw AssemblyFailed(e.what());
  }
}

}  // namespace weft
