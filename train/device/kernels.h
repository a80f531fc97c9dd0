// The kernels of the device backend; see device/kernel.h. E is the model's element, W the element
// of statistics and optimizer state; sums use the value type of both.
//
// Sums over rows have two steps and no atomic additions, so that repeated sums have the same bits.
#pragma once

#include "train/device/kernels_attention.h"
#include "train/device/kernels_elements.h"
#include "train/device/kernels_loss.h"
#include "train/device/kernels_rows.h"

// All kernels except attention, for one element: X(kernel, element).
// clang-format off
#define WEFT_DEVICE_KERNELS(X, E)                                                                \
  X(Add, E) X(Scale, E) X(SetZero, E) X(Narrow, E) X(Widen, E) X(Gelu, E) X(GeluGrad, E)         \
  X(AddRows, E) X(CopyColumns, E) X(Embed, E) X(EmbedSegments, E) X(EmbedGrad, E)                \
  X(PositionsGrad, E) X(ColumnSlabs, E) X(AddSlabs, E) X(LayerNorm, E)        \
  X(LayerNormGrad, E) X(RowMaximum, E) X(RowSum, E) X(CrossEntropyGrad, E)                       \
  X(FusedCrossEntropy, E) X(SquareParts, E) X(LossParts, E) X(AddParts, E) X(LargestParts, E)    \
  X(ExactSquareParts, E) X(AdamW, E) X(Sgd, E)
// clang-format on
