// Instantiates operators that the processor and devices share (operators.h, device/operators.h), in
// the sources that define them.
#pragma once

#include "train/device/types.h"
#include "train/operators/operators.h"

#define WEFT_PRODUCTS(T)                                                        \
  template void linear(T*, const T*, const T*, const T*, Index, Index, Index);  \
  template void linear_grad_input(T*, const T*, const T*, Index, Index, Index); \
  template void linear_grad_weight(T*, T*, const T*, const T*, Index, Index, Index);

#define WEFT_OPERATORS(T)                                                                       \
  template void layer_norm(T*, Wide<T>*, Wide<T>*, const T*, const T*, const T*, Index, Index); \
  template void layer_norm_grad(T*, T*, T*, const T*, const T*, const Wide<T>*, const Wide<T>*, \
                                const T*, Index, Index);                                        \
  template void attention(T*, Wide<T>*, const T*, const AttentionShape&);                       \
  template void attention_grad(T*, const T*, const T*, const Wide<T>*, const T*,                \
                               const AttentionShape&);                                          \
  template void gelu(T*, const T*, Index);                                                      \
  template void gelu_grad(T*, const T*, const T*, Index);                                       \
  template void embed(T*, const T*, const Token*, Index, Index, Index, Index);                  \
  template void embed_grad(T*, const T*, const Token*, Index, Index, Index, Index);             \
  template void add(T*, const T*, Index);                                                       \
  template void scale(T*, HostOf<T>, Index);
