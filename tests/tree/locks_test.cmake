# cmake -D CLANG=clang++ -D SOURCE=... -D BINARY=... -P locks_test.cmake
# Fails if clang finds, in a room with annotated mutexes, guarded data that is used without its
# mutex. Also fails if clang finds no error in sources that take no mutex.

# Sets `found` to clang's messages about the text, a source.
function(weft_check name text)
  file(WRITE ${BINARY}/${name}.cc "${text}")
  execute_process(
    COMMAND ${CLANG} -std=c++20 -fsyntax-only -Wno-everything -Wthread-safety -I${SOURCE} ${BINARY}/${name}.cc
    OUTPUT_VARIABLE out ERROR_VARIABLE out)
  set(found "${out}" PARENT_SCOPE)
endfunction()

# Sources that need an optional library are excluded.
foreach(room IN ITEMS coll/api coll/bindings/c coll/codec coll/gpu coll/runtime coll/tasks
                      transport/control transport/gpu transport/job transport/memory)
  file(GLOB sources ${SOURCE}/${room}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/(cuda|pmix)_[a-z_]*\\.cc$")
  list(TRANSFORM sources REPLACE "(.+)" "#include \"\\1\"\n")
  list(JOIN sources "" text)
  string(REPLACE / _ name ${room})
  weft_check(${name} "${text}")
  if(found)
    message(SEND_ERROR "${room}: take the mutex, or say by an annotation who holds it:\n${found}")
  endif()
endforeach()

set(text "")
foreach(source IN ITEMS coll/gpu/lane.cc coll/gpu/messages.cc coll/gpu/message_ends.cc
                        coll/api/core.cc coll/runtime/answering.cc coll/runtime/waiting.cc)
  file(READ ${SOURCE}/${source} of_source)
  string(REGEX REPLACE "const (Core|Mutex)Lock lock\\([a-z_.]+\\);" "" of_source "${of_source}")
  string(APPEND text "${of_source}")
endforeach()
weft_check(unlocked "${text}")
foreach(guarded IN ITEMS queue_ busy_ closed_ under_way_ captured_ waiting_ usable
                         enter why_given_up learnt_times waiters_)
  if(NOT found MATCHES "'${guarded}' requires holding mutex")
    message(SEND_ERROR "clang does not say that '${guarded}' is used without its mutex:\n${found}")
  endif()
endforeach()
