# libweft_mpi.so (coll/bindings/mpi), once for each MPI that is there, as their mpi.h differ:
# lib/weft/openmpi/libweft_mpi.so and lib/weft/mpich/libweft_mpi.so.

file(GLOB mpi_sources CONFIGURE_DEPENDS coll/bindings/mpi/*.cc)
set(WEFT_MPIS "")
add_custom_target(weft_mpi)
function(weft_mpi name module)
  pkg_check_modules(MPI_${name} QUIET IMPORTED_TARGET ${module})
  # A program without a sanitizer cannot load a library that has one.
  if(NOT MPI_${name}_FOUND OR WEFT_SANITIZE)
    return()
  endif()
  set(WEFT_MPIS ${WEFT_MPIS} ${name} PARENT_SCOPE)
  set(target weft_mpi_${name})
  add_library(${target} SHARED ${mpi_sources})
  # Of weft, the program sees nothing.
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  target_link_libraries(${target} PRIVATE weft_coll PkgConfig::MPI_${name})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME weft_mpi
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/mpi/${name}
    INSTALL_RPATH_USE_LINK_PATH ON)
  add_dependencies(weft_mpi ${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft/${name})
endfunction()
weft_mpi(openmpi ompi-c)
weft_mpi(mpich mpich)
