// A unique id identifies a job before it is connected: the id contains rank 0's addresses and the
// job's secret. The application passes the id to the other ranks.
#pragma once

#include <string>
#include <string_view>

#include "transport/job/bootstrap.h"

namespace weft {

// Returns every address at which other processes can reach this host, comma-separated: the
// interfaces that are up, the host's name, and the loopback device for ranks of this host.
std::string own_addresses();

// A listening socket, and the text with which other ranks connect to it: "secret port address,...".
struct Rendezvous {
  int listen_fd = -1;  // owned by the caller until connect()
  std::string text;
};
// Listens on a free port, at `addresses`. Throws Error if the system calls fail.
Rendezvous open_rendezvous(const std::string& addresses);
// Parses secret, port and addresses from the text of a Rendezvous. Throws Error if malformed.
void read_rendezvous(std::string_view text, JobSpec& spec);

// Creates an id and a listener for its ranks; this process becomes rank 0 of the job. The id is
// printable and has at most kMostUniqueId characters. Throws Error.
inline constexpr std::size_t kMostUniqueId = 1023;
std::string make_unique_id();
// Returns the spec of the job with this id. Rank 0 must be the process that created the id, and may
// call this once. Throws Error if the id is from another version, or if rank 0's process did not
// create the id.
JobSpec job_from_unique_id(std::string_view id, Rank rank, int size);

}  // namespace weft
