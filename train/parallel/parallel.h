// Threads of one rank that share the work of an operator. What a piece is follows from the shape
// alone, never from the number of threads: results have the same bits with any number of them.
#pragma once

#include <algorithm>
#include <functional>

#include "train/operators/tensor.h"

namespace weft::train {

// Threads of a rank's operators: n ranks on a machine share its cores. Of the process.
void set_operator_threads(int threads);
int operator_threads();

// Calls f(piece, worker) for each piece in [0, pieces), each once, in any order, on the calling
// thread and its helpers; worker is in [0, operator_threads()). Returns when all are done. Inside a
// piece, and with one thread, it is a loop. f must not throw.
void in_pieces(std::size_t pieces, const std::function<void(std::size_t, std::size_t)>& f);

// Called on the rank's thread between pieces, every 300 us at most: for messages that have to be
// moved along while operators run. Must not throw. Of the calling thread; null: nothing.
void set_between_pieces(std::function<void()> f);

// f(begin, end) over [0, count) in pieces of so many elements.
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
