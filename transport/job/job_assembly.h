// Assembles a job: makes authenticated connections from a JobSpec, on rank 0 and on the others.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/control/channel.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Rank 0's connection to another rank.
struct Member {
  Channel channel;
  std::string who;  // "rank 3 (host b, pid 1234)"
};

// Another rank's connection to rank 0.
struct RootLink {
  Channel channel;
  std::string who;
  std::chrono::milliseconds period{250};  // between heartbeats
};

// Returns the period of heartbeats, short enough to detect a stopped rank before the timeout.
std::chrono::milliseconds heartbeat_period(std::chrono::milliseconds timeout);

// Waits for all ranks and returns them by rank ([0] is unused). When ranks are missing, two claim
// one rank or sizes differ, it tells the ranks that have come and throws Error, or WrongSetUp.
std::vector<Member> assemble_root(const JobSpec& spec);

// Finds rank 0 and waits until rank 0 reports that all ranks have come. Throws Error or WrongSetUp
// otherwise.
RootLink assemble_leaf(const JobSpec& spec);

// A door is the port on which a rank listens, so that survivors find it after rank 0's end.
// Waits at `door` for the ranks above this one and returns them by rank; `mask` gets '1' or '0' for
// each rank of the job: whether it goes on. The wait lasts at most for spec.timeout and leaves out
// the ranks that are `dead` and those at whose door no process listens.
std::vector<Member> assemble_survivors(const JobSpec& spec, Fd door, std::span<const Rank> dead,
                                       const std::vector<std::string>& doors, std::string& mask);
// Joins the rank that waits at `door` ("address port"). Throws Error at once when none listens.
RootLink join_survivors(const JobSpec& spec, const std::string& door, std::string& mask);
// Returns how long to wait for a kernel's answer to a connection: half the timeout, but at most 5 s
// where a listener of this host queues every rank twice (mute_doors() connects, too). The function
// assumes that other hosts queue as many.
std::chrono::milliseconds answer_time(const JobSpec& spec);
// Parses a port's number; 0: `text` is no port.
std::uint16_t port_in(std::string_view text);
// True for a numeric loopback address, which on each host means that host.
bool on_loopback(std::string_view address) noexcept;
// Whether every address of a list (commas between) is such a one, or "localhost".
bool all_on_loopback(std::string_view addresses) noexcept;
// Resolves a door, "address port"; returns no endpoint when the text is unusable.
std::vector<Endpoint> door_endpoints(const std::string& door);
// Tries to connect to all doors at once. Returns for each door 0 where a process listens, else an
// errno: EINPROGRESS where no answer came within the limit. A nullptr is a door with no listener.
std::vector<int> knock(const std::vector<const Endpoint*>& doors, std::chrono::milliseconds limit);
// Returns for each door whether its host is gone, so that no kernel answers.
std::vector<bool> mute_doors(const JobSpec& spec, std::span<const std::string> doors);

// Throws WrongSetUp for a failure that is about how the processes were started, else Error.
[[noreturn]] void throw_assembly_failure(const Status& failure);

// True when connect() has used this listen_fd: a second job of the process must not use it again.
bool listen_fd_taken(int fd) noexcept;

// Starts rank 0's control plane over the connections to `members`.
std::unique_ptr<Job> make_root_job(const JobSpec& spec, std::vector<Member> members);
// Starts another rank's control plane over the connection to rank 0.
std::unique_ptr<Job> make_leaf_job(const JobSpec& spec, RootLink link);

}  // namespace weft
