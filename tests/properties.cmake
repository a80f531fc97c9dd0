# How CTest, the sanitizers and `./weft test --quick` treat a test.

# Sets `var` to the text after "// key:" in a source, as a list. The key may follow a sentence.
function(weft_comment var source key)
  file(STRINGS ${source} line REGEX "^//( .*[.])? ${key}: [^:]+$" LIMIT_COUNT 1)
  string(REGEX REPLACE "^//( .*[.])? ${key}: *" "" line "${line}")
  string(REGEX REPLACE " +" ";" line "${line}")
  set(${var} "${line}" PARENT_SCOPE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
endfunction()

# CTest ends tests that hang after a time limit. Code with sanitizers, at -O0, takes several times
# as long.
set(weft_patience 1)
if(WEFT_SANITIZE)
  set(weft_patience 4)
endif()

# Sets `var` to the CTest properties of a test with these labels. CTest's parallel level counts
# quarters of a core. A test counts as one core: a thread that computes uses one, and processes
# that wait for each other leave about one core to a second test. Processes that wait for deadlines
# count as half a core. No test reserves the whole machine, since it would wait until all others
# have ended. The lab, the guest and the GPU exist once. COST determines the order of starts: first
# the longest tests, then tests that wait, so that short tests fill the cores at the end. CTest has
# no times in a clean clone, and COST overrides the times of earlier runs.
function(weft_test_properties var)
  math(EXPR timeout "300 * ${weft_patience}")
  set(processors 4)
  set(cost 0)
  if("softroce" IN_LIST ARGN)
    set(cost 1000)
  elseif("lab" IN_LIST ARGN)
    set(cost 100)
  elseif("whole" IN_LIST ARGN)
    set(cost 50)
  elseif("waits" IN_LIST ARGN)
    set(cost 40)
  elseif("sim" IN_LIST ARGN)
    set(cost 30)
  elseif("multiproc" IN_LIST ARGN)
    set(cost 10)
  endif()
  if("waits" IN_LIST ARGN)
    set(processors 2)
  endif()
  set(properties TIMEOUT ${timeout} PROCESSORS ${processors} COST ${cost})
  foreach(label IN ITEMS lab softroce cuda)
    if(label IN_LIST ARGN)
      list(APPEND properties RESOURCE_LOCK ${label})
    endif()
  endforeach()
  set(${var} ${properties} PARENT_SCOPE)
endfunction()

# Selects the tests of the sanitizers. Sets `var` to `short` for tests that `./weft test
# --sanitize` runs in this build, `long` for tests that only --all runs, `no` for other tests, and
# to nothing in a build without a sanitizer. AddressSanitizer runs fast tests: all code, one
# process. ThreadSanitizer runs tests with threads, which are in coll and transport, and no program
# of another folder. No sanitizer runs a lab or a GPU test. The target weft_sanitized contains the
# programs of the short tests, weft_sanitized_long those of both.
function(weft_sanitizer_tier var folder comment)
  set(tier long)
  if(NOT WEFT_SANITIZE)
    set(tier "")
  elseif(ARGN MATCHES "lab|softroce|cuda|bench" OR "no" IN_LIST comment)
    set(tier no)
  elseif(WEFT_SANITIZE MATCHES "thread")
    if(NOT folder MATCHES "^(coll|train|transport)$" OR ARGN MATCHES "sim")
      set(tier no)
    elseif("threads" IN_LIST comment
           OR (NOT comment AND folder MATCHES "^(coll|transport)$" AND ARGN MATCHES "multiproc"))
      set(tier short)
    endif()
  elseif("address" IN_LIST comment OR (NOT comment AND ARGN MATCHES "fast"))
    set(tier short)
  endif()
  set(${var} ${tier} PARENT_SCOPE)
endfunction()
add_custom_target(weft_sanitized)
add_custom_target(weft_sanitized_long DEPENDS weft_sanitized weft weft_shared)
function(weft_sanitizer_target program tier)
  if(tier STREQUAL "short")
    add_dependencies(weft_sanitized ${program})
  elseif(tier STREQUAL "long")
    add_dependencies(weft_sanitized_long ${program})
  endif()
endfunction()

# The programs of `./weft test --quick`; quick.txt lists them after their folders.
add_custom_target(weft_quick)
