# Compiles every CUDA source for one architecture and links them: no GPU is needed for that.
file(REAL_PATH ${NVCC} nvcc)
cmake_path(GET nvcc PARENT_PATH bin)
cmake_path(GET bin PARENT_PATH toolkit)
file(MAKE_DIRECTORY ${BINARY})
file(GLOB kernels ${SOURCE}/transport/*.cu ${SOURCE}/coll/*.cu ${SOURCE}/train/*.cu)
file(GLOB hosts ${SOURCE}/transport/cuda_*.cc ${SOURCE}/train/cuda_*.cc)
set(objects "")
foreach(source IN LISTS kernels hosts)
  cmake_path(GET source FILENAME name)
  cmake_path(GET source EXTENSION kind)
  set(object ${BINARY}/${name}.o)
  if(kind STREQUAL ".cu")
    set(compiler ${NVCC} -arch=sm_90 -O1 --fmad=false -ccbin ${CXX} -Xcompiler=-fPIC,-Wall)
  else()
    set(compiler ${CXX} -O1 -fPIC -Wall -Wextra -Wpedantic -isystem ${toolkit}/include)
  endif()
  execute_process(
    COMMAND ${compiler} -std=c++20 -DWEFT_HAVE_CUDA=1 -DWEFT_CUDA_LIBRARIES="" -I${SOURCE} -c ${source} -o ${object}
    COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND objects ${object})
endforeach()
execute_process(
  COMMAND ${NVCC} -shared -ccbin ${CXX} -cudart static ${objects} -lfmt -lspdlog -ldl
          -o ${BINARY}/libcuda_parts.so
  COMMAND_ERROR_IS_FATAL ANY)
