// The kernels of the device backend; device/kernel.h says how they are written. E is the element of
// the model, W that of statistics and state; sums are in the value type of both.
//
// Sums over rows have two steps and no atomic additions, so that a step has the same bits each time
// it is done.
#pragma once

#include "train/device/kernel_bodies_elements.h"
#include "train/device/kernel_bodies_loss.h"
#include "train/device/kernel_bodies_rows.h"

// Every kernel for one element: X(kernel, element).
#define WEFT_DEVICE_KERNELS(X, E)                                                                  \
  X(Add, E)                                                                                        \
  X(Scale, E) X(SetZero, E) X(Narrow, E) X(Widen, E) X(Gelu, E) X(GeluGrad, E) X(AddRows, E)       \
      X(CopyColumns, E) X(Embed, E) X(EmbedSegments, E) X(EmbedGrad, E) X(AddPositions, E)         \
          X(PositionsGrad, E) X(ColumnSlabs, E) X(AddSlabs, E) X(LayerNorm, E) X(LayerNormGrad, E) \
              X(CausalSoftmax, E) X(CausalSoftmaxGrad, E) X(RowMaximum, E) X(RowSum, E)            \
                  X(CrossEntropyGrad, E) X(FusedCrossEntropy, E) X(SquareParts, E) X(LossParts, E) \
                      X(AddParts, E) X(LargestParts, E) X(ExactSquareParts, E) X(AdamW, E)         \
                          X(Sgd, E)
