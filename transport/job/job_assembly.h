// Assembling a job: from a JobSpec to authenticated connections, on rank 0 and on the others.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/control/channel.h"
#include "transport/job/bootstrap.h"

namespace weft {

// What rank 0 has of another rank.
struct Member {
  Channel channel;
  std::string who;  // "rank 3 (host b, pid 1234)"
};

// What another rank has of rank 0.
struct RootLink {
  Channel channel;
  std::string who;
  std::chrono::milliseconds period{250};  // of the heartbeats
};

// How often each rank is heard of: often enough to tell a stopped rank well before the deadline.
std::chrono::milliseconds heartbeat_period(std::chrono::milliseconds timeout);

// Waits for all ranks and returns them by rank ([0] is unused). Throws Error, after telling the
// ranks that are there, when some do not arrive, or two claim one rank, or a size is different.
std::vector<Member> assemble_root(const JobSpec& spec);

// Finds rank 0 and waits until it says that all are here. Throws Error otherwise.
RootLink assemble_leaf(const JobSpec& spec);

// After rank 0's end: the ranks above this one that come to `door`, by rank; and who goes on, in
// `mask` ('1' or '0' for each rank of the job). Waits for all but `dead` and those whose door is
// shut, at most for spec.timeout.
std::vector<Member> assemble_survivors(const JobSpec& spec, Fd door, Rank dead,
                                       const std::vector<std::string>& doors, std::string& mask);
// The other side: `door` is "address port". Throws Error at once when nobody is there.
RootLink join_survivors(const JobSpec& spec, const std::string& door, std::string& mask);
// A kernel answers, whatever its programs do: at once, where its queue has room for all ranks,
// twice each: mute_doors() may have knocked before. That of other hosts is as long as this one's,
// as they are of one cluster.
std::chrono::milliseconds answer_time(const JobSpec& spec);
// The port's number; 0: it is none.
std::uint16_t port_in(std::string_view text);
// Of a numeric address: it means another host on each host.
bool on_loopback(std::string_view address) noexcept;
// "address port"; nothing when it cannot be used.
std::vector<Endpoint> door_endpoints(const std::string& door);
// Tries all at once. Of each: 0 where somebody listens, else why not, EINPROGRESS where nothing has
// answered within the limit. nullptr is a place where nobody listens.
std::vector<int> knock(const std::vector<const Endpoint*>& doors, std::chrono::milliseconds limit);
// Of these doors, where there is no host any more that would answer.
std::vector<bool> mute_doors(const JobSpec& spec, std::span<const std::string> doors);

// What connect() did with spec.listen_fd, so that a second job of this process does not reuse it.
bool listen_fd_taken(int fd) noexcept;

// The control plane over the connections.
std::unique_ptr<Job> make_root_job(const JobSpec& spec, std::vector<Member> members);
std::unique_ptr<Job> make_leaf_job(const JobSpec& spec, RootLink link);

}  // namespace weft
