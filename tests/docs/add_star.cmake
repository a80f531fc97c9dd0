# What docs/tutorials/your-own-algorithm.md asks for, done to the text of coll/schedule/algorithm.cc.

# Sets `var` to `source` with the star in its list; to "" where it is there, as the reader of the
# page has put it there; to NOTFOUND where the list has another form.
function(weft_add_star var source)
  set(${var} "" PARENT_SCOPE)
  if(source MATCHES "star_algorithms")
    return()
  endif()
  set(families "std::vector<Algorithm> families() {")
  set(declaration "}\nstd::span<const Algorithm> star_algorithms();\nnamespace {\n\n")
  string(REPLACE "${families}" "${declaration}${families}" declared "${source}")
  string(REPLACE " tree_algorithms()" " tree_algorithms(), star_algorithms()" listed "${declared}")
  if(declared STREQUAL source OR listed STREQUAL declared)
    set(listed NOTFOUND)
  endif()
  set(${var} "${listed}" PARENT_SCOPE)
endfunction()
