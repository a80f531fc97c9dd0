// Constructs the mode of data parallelism that the options select.
#include <memory>

#include "train/parallel/deterministic.h"
#include "train/parallel/server_replicas.h"
#include "train/parallel/zero3.h"

namespace weft::train {
namespace {

template <class T, class Mode, class Deterministic>
std::unique_ptr<DataParallel<T>> make(GptStage<T>& stage, Mesh& mesh,
                                      const DataParallelOptions& options,
                                      const OptimizerOptions& optimizer) {
  if (options.deterministic)
    return std::make_unique<Deterministic>(stage, mesh, options, optimizer);
  return std::make_unique<Mode>(stage, mesh, options, optimizer);
}

}  // namespace

template <class T>
std::unique_ptr<DataParallel<T>> make_data_parallel(GptStage<T>& stage, Mesh& mesh,
                                                    const DataParallelOptions& options,
                                                    const OptimizerOptions& optimizer) {
  using Server = ServerReplicas<T>;
  using Plain = DataParallel<T>;
  constexpr decltype(&make<T, Plain, Plain>) kOfZero[] = {
      make<T, Plain, InOrder<T, Plain>>, make<T, Zero1<T>, InOrder<T, Zero1<T>>>,
      make<T, Zero2<T>, InOrderOfParts<T, Zero2<T>>>,
      make<T, Zero3<T>, InOrderOfParts<T, Zero3<T>>>};
  const auto chosen = options.server ? make<T, Server, InOrder<T, Server>> : kOfZero[options.zero];
  return chosen(stage, mesh, options, optimizer);
}

#define WEFT_MODES(T)                                           \
  template std::unique_ptr<DataParallel<T>> make_data_parallel( \
      GptStage<T>&, Mesh&, const DataParallelOptions&, const OptimizerOptions&);
WEFT_TYPES(WEFT_MODES)

}  // namespace weft::train
