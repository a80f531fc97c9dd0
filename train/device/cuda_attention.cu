// GPU code of attention: compiles as long as all other kernels together. See device/cuda_launch.h.
#include "train/device/cuda_attention16.h"
#include "train/device/cuda_launch.h"
#include "train/device/kernels_attention.h"

namespace weft::train::kernels {

WEFT_LAUNCHES(load_attention_on_gpu, WEFT_ATTENTION_KERNELS);

}  // namespace weft::train::kernels
