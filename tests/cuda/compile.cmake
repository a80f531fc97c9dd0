# Compiles every CUDA source for one architecture and links them: no GPU is needed for that.
file(REAL_PATH ${NVCC} nvcc)
cmake_path(GET nvcc PARENT_PATH bin)
cmake_path(GET bin PARENT_PATH toolkit)
file(MAKE_DIRECTORY ${BINARY})
set(kernels "")
set(hosts "")
foreach(folder IN ITEMS transport coll train)
  file(GLOB more ${SOURCE}/${folder}/*.cu ${SOURCE}/${folder}/*/*.cu)
  list(APPEND kernels ${more})
  file(GLOB more ${SOURCE}/${folder}/cuda_*.cc ${SOURCE}/${folder}/*/cuda_*.cc)
  list(APPEND hosts ${more})
endforeach()
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
