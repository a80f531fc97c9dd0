// Giving the core to others while there is nothing to do but wait.
#pragma once

namespace weft {

// Calls sched_yield(). The first call of a thread also asks the kernel for the shortest time slices
// it gives (0.1 ms; sched_setattr(2), Linux 6.12 and later, no privilege needed; elsewhere nothing
// happens): the thread's share of the core stays as it is, but where others compute on it, as soon
// as what it waits for has come it runs after 0.1 ms instead of after several slices of 3 ms. A
// policy other than SCHED_OTHER, and slices that are as short already, are left as they are.
// Thread-safe.
void yield_core();

}  // namespace weft
