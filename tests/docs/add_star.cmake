# Applies the change of docs/tutorials/your-own-algorithm.md to the text of
# coll/schedule/algorithm.cc.

# Sets `var` to `source` with the star in its list; to "" if the list already contains the star,
# because a reader of the page has added it; to NOTFOUND if the list has another form.
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
