// Threads of one rank that share the work of an operator. The split into pieces depends only on the
// shape, so results have the same bits with any number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

namespace weft::train {

// Sets the number of threads for the operators of each rank, process-wide: ranks of a machine share
// its cores.
void set_operator_threads(int threads);
int operator_threads();

// Calls f(piece, worker) once for each piece in [0, pieces), in any order, on the calling thread
// and its helpers; worker is in [0, operator_threads()). Returns when all pieces are done. Inside a
// piece, and with one thread, in_pieces() is a loop. f must not throw.
void in_pieces(std::size_t pieces, const std::function<void(std::size_t, std::size_t)>& f);

// Sets the function f of the calling thread, which calls f between its pieces, at most every 300
// us, to advance messages while operators run. f must not throw; null: no calls.
void set_between_pieces(std::function<void()> f);

// Calls f(begin, end) over [0, count) in pieces of `piece` elements.
template <class F>
void in_ranges(std::size_t count, std::size_t piece, F f) {
  if (count <= piece) {
    if (count > 0) f(std::size_t{0}, count);
    return;
  }
  in_pieces((count + piece - 1) / piece,
            [&](std::size_t i, std::size_t) { f(i * piece, std::min(count, (i + 1) * piece)); });
}

}  // namespace weft::train
