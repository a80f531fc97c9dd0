// A unique id names a job that is about to assemble: where rank 0 listens, and the job's secret.
// Whoever makes the id hands it to the other ranks; this file does not know how.
#pragma once

#include <string>
#include <string_view>

#include "transport/job/bootstrap.h"

namespace weft {

// Returns every address at which other processes may reach this host, comma-separated: the
// interfaces that are up, the host's name, and the loopback device for ranks of this host.
std::string own_addresses();

// A listening socket, and the text that leads the other ranks to it: "secret port address,...".
struct Rendezvous {
  int listen_fd = -1;  // the caller's; connect() takes it over
  std::string text;
};
// Listens on a free port, at `addresses`. Throws Error where the kernel refuses.
Rendezvous open_rendezvous(const std::string& addresses);
// Takes secret, port and addresses from the text of a Rendezvous. Throws Error on another text.
void read_rendezvous(std::string_view text, JobSpec& spec);

// Makes an id, and listens for the ranks that will use it; the process becomes rank 0 of the job.
// Printable; at most kMostUniqueId characters. Throws Error.
inline constexpr std::size_t kMostUniqueId = 1023;
std::string make_unique_id();
// Describes the job of an id to connect(). The process that made the id is rank 0, once. Throws
// Error where the id is not one of this version, or rank 0 has not made it.
JobSpec job_from_unique_id(std::string_view id, Rank rank, int size);

}  // namespace weft
