# Installs a built tree, moves it, then configures, builds and runs a program that uses it, by its
# CMake package and by pkg-config.

# Escapes the dots of the version in regular expressions.
string(REPLACE . "\\." VERSION ${VERSION})

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

# Each installed header compiles alone, and only headers of the interface are installed.
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*.h)
list(LENGTH headers count)
if(count LESS 4)
  message(FATAL_ERROR "expected the headers of coll/api and what they include, found: ${headers}")
endif()
foreach(header IN LISTS headers)
  if(NOT header MATCHES "^weft/(weft\\.h$|coll/api/|coll/types\\.h$|topo/|transport/memory/memory\\.h$)")
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

# The C interface: pedantic C99, by a C compiler.
set(c_flags -std=c99 -D_POSIX_C_SOURCE=200809L -pedantic -Wall -Wextra -Werror ${flags})
foreach(program IN ITEMS sum calls)
  run(${C_COMPILER} ${c_flags} ${C_CONSUMER}/${program}.c -o ${WORK}/${program} ${weft}
      -Wl,-rpath,${prefix}/${LIBDIR})
endforeach()
run(${WORK}/sum)
expect("^sum 1\n$")
foreach(ranks IN ITEMS 1 2 4)
  # Starts by a launcher, and by a unique id.
  run(${prefix}/bin/weft launch -N ${ranks} -- ${WORK}/calls)
  math(EXPR last "${ranks} - 1")
  expect("rank ${last} of ${ranks} is right")
  run(${C_CONSUMER}/by_id ${WORK}/calls ${WORK}/id.${ranks} ${ranks})
  expect("rank ${last} of ${ranks} is right")
endforeach()

# The library exports exactly the list: the list, the library and the header have the same C names,
# and exported C++ names belong to the interface's classes and functions.
run(${NM} -D --defined-only --demangle ${prefix}/${LIBDIR}/libweft.so)
string(REPLACE ";" "," output "${output}")
string(REGEX REPLACE "\n" ";" lines "${output}")
set(exported)
foreach(line IN LISTS lines)
  if(line MATCHES " A WEFT_" OR line STREQUAL "")
    continue()
  elseif(line MATCHES "^[0-9a-f]+ . (weft_[a-z_]+)@@WEFT_${VERSION}$")
    list(APPEND exported ${CMAKE_MATCH_1})
  elseif(NOT line MATCHES "^[0-9a-f]+ . ((vtable|typeinfo|typeinfo name) for )?weft::(World|Communicator|Request|Batch|Status|Topology|Error|StatusError|alloc|free|name|dtype_from|redop_from|collective_from|codec_from|error_bound|to_prometheus|difference|signs_of_trouble|to_string)(::|\\(|\\[|@).*@WEFT_CXX_${VERSION}$")
    message(FATAL_ERROR "libweft.so exports what is not in coll/bindings/c/libweft.map: ${line}")
  endif()
endforeach()
file(READ ${SOURCE}/coll/bindings/c/libweft.map map)
string(REGEX MATCHALL "weft_[a-z_]+;" listed "${map}")
string(REPLACE ";;" ";" listed "${listed}")
file(READ ${SOURCE}/coll/bindings/c/weft.h header)
string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" header "${header}")
string(REGEX MATCHALL "[ *]weft_[a-z_]+\\(" declared "${header}")
string(REGEX REPLACE "[ *(]" "" declared "${declared}")
foreach(names IN ITEMS exported listed declared)
  string(REGEX REPLACE ";+" ";" ${names} "${${names}}")
  list(FILTER ${names} EXCLUDE REGEX "^$")
  list(SORT ${names})
endforeach()
if(NOT exported STREQUAL listed)
  message(FATAL_ERROR "libweft.map lists\n${listed}\nand the library exports\n${exported}")
endif()
if(NOT declared STREQUAL listed)
  message(FATAL_ERROR "libweft.map lists\n${listed}\nand weft.h declares\n${declared}")
endif()
