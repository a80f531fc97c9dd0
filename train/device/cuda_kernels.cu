// GPU code of all kernels except attention. See device/cuda_launch.h.
#include "train/device/cuda_launch.h"
#include "train/device/kernels.h"

namespace weft::train::kernels {

WEFT_LAUNCHES(load_on_gpu, WEFT_DEVICE_KERNELS);

}  // namespace weft::train::kernels
