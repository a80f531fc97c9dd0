// The parameter server of --sync ps, in place of the all-reduce: the first rank of each
// data-parallel group computes like the other ranks, and alone has the optimizer's state. The
// others send it their gradients, bucket by bucket while the backward pass runs; the server adds
// them up, takes the step and sends its weights to all. Results are those of the all-reduce. Each
// stage of a pipeline and each rank of a tensor-parallel group has a server of its own.
#include "train/operators/operators.h"
#include "train/parallel/data_parallel.h"

namespace weft::train {
namespace {

constexpr Rank kServer = 0;  // of the data axis

}  // namespace

// On the server the gradients become the sum over all replicas; the others' are of no use then.
template <class T>
Request DataParallel<T>::push(char* gradients, std::size_t count) {
  return mesh_.data.beside<T>().reduce_async(gradients, gradients, count, type_, RedOp::kSum,
                                             kServer);
}

// The same for sums that have one order (reduce_in_order), and done when it returns.
template <class T>
void DataParallel<T>::push_in_order(Sum* gradients, std::size_t count) {
  mesh_.data.run([&] {
    return mesh_.data.in_order<T>().reduce(gradients, gradients, count, kDType<Sum>, RedOp::kSum,
                                           kServer);
  });
}

template <class T>
void DataParallel<T>::pull() {
  for (const Bucket& b : buckets_)
    mesh_.data.run([&] {
      T* weights = weights_.data() + b.begin;
      return mesh_.data.in_order<T>().broadcast(weights, weights, b.count(), kDType<T>, kServer);
    });
}

#define WEFT_SERVER(T)                                                              \
  template Request DataParallel<T>::push(char*, std::size_t);                       \
  template void DataParallel<T>::push_in_order(DataParallel<T>::Sum*, std::size_t); \
  template void DataParallel<T>::pull();
WEFT_TYPES(WEFT_SERVER)

}  // namespace weft::train
