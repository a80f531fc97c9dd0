// Assembles a job: creates authenticated connections from a JobSpec, on rank 0 and on the other
// ranks.
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

// Returns the period of heartbeats, short enough to detect a stopped rank within the timeout.
std::chrono::milliseconds heartbeat_period(std::chrono::milliseconds timeout);

// Waits for all ranks and returns them by rank ([0] is unused). If ranks are missing, two processes
// claim one rank, or sizes differ, notifies the connected ranks and throws Error or WrongSetUp.
std::vector<Member> assemble_root(const JobSpec& spec);

// Connects to rank 0 and waits until it reports that all ranks are connected. Throws Error or
// WrongSetUp.
RootLink assemble_leaf(const JobSpec& spec);

// A door is a port on which a rank listens so that survivors can connect to it after rank 0 has
// failed. Waits at `door` for the ranks above this one and returns them by rank; `mask` gets '1'
// for each surviving rank, '0' for the others. Waits at most for spec.timeout, and does not wait
// for ranks in `dead` or ranks whose door has no listener.
std::vector<Member> assemble_survivors(const JobSpec& spec, Fd door, std::span<const Rank> dead,
                                       const std::vector<std::string>& doors, std::string& mask);
// Connects to the rank that waits at `door` ("address port"). Throws Error immediately if no
// process listens.
RootLink join_survivors(const JobSpec& spec, const std::string& door, std::string& mask);
// Returns how long to wait for a kernel's response to a connection request: half the timeout, and
// at most 5 s if a listener of this host can queue every rank twice (mute_doors() also connects).
// Assumes equal queue lengths on all hosts.
std::chrono::milliseconds answer_time(const JobSpec& spec);
// Parses a port number; returns 0 if `text` is not a port number.
std::uint16_t port_in(std::string_view text);
// Returns whether the address is a numeric loopback address.
bool on_loopback(std::string_view address) noexcept;
// Returns whether every address of a comma-separated list is a loopback address or "localhost".
bool all_on_loopback(std::string_view addresses) noexcept;
// Resolves a door, "address port"; empty if the text is malformed.
std::vector<Endpoint> door_endpoints(const std::string& door);
// Tries to connect to all doors at once. Returns for each door 0 if a process listens, otherwise an
// errno: EINPROGRESS if no response arrived within the limit. nullptr stands for a rank without a
// door.
std::vector<int> knock(const std::vector<const Endpoint*>& doors, std::chrono::milliseconds limit);
// Returns for each door whether its host is unreachable (no kernel responds).
std::vector<bool> mute_doors(const JobSpec& spec, std::span<const std::string> doors);

// Throws WrongSetUp if the cause is the launch of the processes, otherwise Error.
[[noreturn]] void throw_assembly_failure(const Status& failure);

// Returns whether connect() has used this listen_fd: another job of the process must not reuse it.
bool listen_fd_taken(int fd) noexcept;

// Starts rank 0's control plane over the connections to `members`.
std::unique_ptr<Job> make_root_job(const JobSpec& spec, std::vector<Member> members);
// Starts another rank's control plane over the connection to rank 0.
std::unique_ptr<Job> make_leaf_job(const JobSpec& spec, RootLink link);

}  // namespace weft
