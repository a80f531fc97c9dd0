# Flags of every target: warnings, sanitizers, coverage for libFuzzer.

# nvcc's own code is not pedantic.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic>"
                    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # GCC takes structs without names in unions, and `#pragma GCC ivdep` is GCC's. ccache keeps nothing
  # that depends on the time at which a header was precompiled.
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety;-Wno-nested-anon-types;-Wno-unknown-pragmas>"
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
if(WEFT_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

# lld links sixty programs in a tenth of the time that GNU ld takes.
find_program(WEFT_LLD ld.lld)
if(WEFT_LLD)
  add_link_options("$<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>")
endif()

set(weft_sanitize ${WEFT_SANITIZE})
if(WEFT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WEFT_FUZZ=ON needs clang, not ${CMAKE_CXX_COMPILER}: configure with "
                        "-DCMAKE_CXX_COMPILER=clang++, or leave WEFT_FUZZ off (the fuzz targets "
                        "then run seeded inputs)")
  endif()
  set(weft_sanitize fuzzer-no-link,address)
endif()
if(weft_sanitize)
  # Without -fno-sanitize-recover, undefined behaviour is printed and the test passes.
  set(flags -fsanitize=${weft_sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(weft_sanitize MATCHES "address,undefined")
    # AddressSanitizer stops at what these look for, and they look at every access: without them, a
    # sixth of the compiler's time is saved.
    list(APPEND flags -fno-sanitize=null,object-size,vptr)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  add_link_options(-fsanitize=${weft_sanitize})
endif()

# GCC 12 takes <regex> for uninitialised where sanitizers keep it from inlining.
if(WEFT_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()

# GCC warns that ThreadSanitizer does not see fences. There is one, for a message that is taken back
# while it is read (shm/receive.cc); all else is acquire and release.
if(WEFT_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
endif()
