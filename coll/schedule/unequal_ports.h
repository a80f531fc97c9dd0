// all_reduce along the rails of hosts of which one has ports that are slower than the others.
//
// That host must send and get the message once, whoever adds it up; a host that takes its part in
// adding up has nearly twice as many bytes. So the host with slow ports adds up less: of the share
// 1 - b of the message it only sends its contribution, in pieces, each to one of the other hosts,
// which adds it to its own, and gets the results the same way, over all of its ports in proportion
// to their rates. Of a rail where its port is slow, it sends over another rail, to the neighbor of
// the rank that wants it. The other hosts add up that share among themselves, and the share b with
// all hosts, as if all ports were equal. b follows from the rates in closed form, and reaches the
// lower bound: 2 (H-1) / (rate of all ports of all hosts) or 1 / (rate of the slow host's ports),
// whichever is more (the bound for ranks instead of hosts: OptCC, arXiv 2606.01680).
#pragma once

#include "coll/schedule/building_blocks.h"

namespace weft {

using RailBlock = void (*)(Schedule&, Group, Chunks, int);

// Whether unequal_ports_all_reduce() applies: ports of one host are slow (Shape::slow_ports) and
// not all of them dead, all hosts have as many ranks, and the order of additions is free.
bool has_unequal_ports(const Shape& shape);
Schedule unequal_ports_all_reduce(const Shape& shape, RailBlock reduce_scatter,
                                  RailBlock all_gather);

}  // namespace weft
