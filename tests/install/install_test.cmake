# Installs a built tree, moves it, then configures, builds and runs a program that uses it: by its
# CMake package, and by pkg-config.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output TIMEOUT 200)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "expected '${pattern}' in the output, which is:\n${output}")
  endif()
endfunction()

unset(ENV{DESTDIR})
set(prefix ${WORK}/moved)
set(flags "")
if(SANITIZE)
  set(flags -fsanitize=${SANITIZE})
endif()
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
file(RENAME ${WORK}/prefix ${prefix})

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${WORK}/build
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${flags})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
expect("^sum 1\n$")

# Each installed header compiles alone, and there are no others than those of the interface.
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*.h)
list(LENGTH headers count)
if(count LESS 4)
  message(FATAL_ERROR "expected the headers of coll/api and what they include, found: ${headers}")
endif()
foreach(header IN LISTS headers)
  if(NOT header MATCHES "^weft/(coll/api/|coll/types\\.h$|topo/|transport/memory/memory\\.h$)")
    message(FATAL_ERROR "${header} is installed, and is no part of the interface")
  endif()
  file(WRITE ${WORK}/alone.cc "#include <${header}>\n")
  run(${COMPILER} -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I${prefix}/include
      -I${prefix}/include/weft ${WORK}/alone.cc)
endforeach()

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(${PKG_CONFIG} --cflags --libs weft)
string(STRIP "${output}" output)
separate_arguments(weft UNIX_COMMAND "${output}")
run(${COMPILER} -std=c++20 ${flags} ${CONSUMER}/main.cc -o ${WORK}/by_pkg_config ${weft}
    -Wl,-rpath,${prefix}/${LIBDIR})
run(${WORK}/by_pkg_config)
expect("^sum 1\n$")

run(${prefix}/bin/weft --help)
expect("weft")
