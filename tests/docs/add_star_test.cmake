# Readers of the tutorial change coll/schedule/algorithm.cc: CMake must still configure their tree.
# PAGE and REGISTRY are the files.
include(${CMAKE_CURRENT_LIST_DIR}/add_star.cmake)
file(READ ${PAGE} page)
file(READ ${REGISTRY} registry)

weft_add_star(changed "${registry}")
if(NOT changed)
  message(FATAL_ERROR "${REGISTRY} has changed: change ${PAGE}, and then add_star.cmake")
endif()

# The page's diff, applied.
if(NOT page MATCHES "\n-([^\n]* tree_algorithms[^\n]*)\n[+]([^\n]*)\n[+]([^\n]* star_algorithms[^\n]*)\n")
  message(FATAL_ERROR "${PAGE} has no diff of ${REGISTRY}")
endif()
string(REPLACE "${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}\n${CMAKE_MATCH_3}" applied "${registry}")
if(applied STREQUAL registry)
  message(FATAL_ERROR "${PAGE}: its diff does not apply to ${REGISTRY}: change the page")
endif()
weft_add_star(changed "${applied}")
if(NOT changed STREQUAL "")
  message(FATAL_ERROR "the page's diff is not seen in ${REGISTRY}: the star would be there twice")
endif()

# A reader's own algorithm.
string(REPLACE "tree_algorithms()" "tree_algorithms(),\n  my_algorithms()" other "${registry}")
weft_add_star(changed "${other}")
if(NOT changed MATCHES "my_algorithms" OR NOT changed MATCHES "star_algorithms")
  message(FATAL_ERROR "a list with another algorithm is not understood")
endif()
weft_add_star(changed "nothing of the kind")
if(changed)
  message(FATAL_ERROR "what has no list was changed")
endif()
