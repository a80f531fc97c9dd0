# `./weft package`: a .deb and a tarball for machines without a compiler. They bring every library
# that weft is linked with, in lib/weft, but the C and C++ run-time libraries. What transport/loaded
# loads, weft uses where the machine has it.

# RPATH, not RUNPATH: it holds for the libraries of these libraries, too.
foreach(target IN ITEMS weft weft_shared)
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endforeach()
set_property(TARGET weft APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/weft")
set_property(TARGET weft_shared APPEND PROPERTY INSTALL_RPATH "$ORIGIN/weft")
add_custom_target(weft_packaged DEPENDS weft weft_shared)
foreach(mpi IN LISTS WEFT_MPIS)
  target_link_options(weft_mpi_${mpi} PRIVATE LINKER:--disable-new-dtags)
  set_property(TARGET weft_mpi_${mpi} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/..")
  add_dependencies(weft_packaged weft_mpi_${mpi})
endforeach()

# Not with `cmake --install`: there, the machine has them.
install(CODE "set(weft_folder \"${CMAKE_INSTALL_LIBDIR}/weft\")" COMPONENT libraries EXCLUDE_FROM_ALL)
install(CODE [[
  set(weft_licenses "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/doc/weft/libraries")
  file(MAKE_DIRECTORY ${weft_licenses})
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES $<TARGET_FILE:weft>
    LIBRARIES $<TARGET_FILE:weft_shared>
    RESOLVED_DEPENDENCIES_VAR found
    UNRESOLVED_DEPENDENCIES_VAR missing
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so" "^libweft")
  if(missing)
    message(FATAL_ERROR "libraries that weft is linked with are not there: ${missing}")
  endif()
  foreach(library IN LISTS found)
    file(INSTALL "${library}" DESTINATION "${CMAKE_INSTALL_PREFIX}/${weft_folder}" FOLLOW_SYMLINK_CHAIN)
    # Its license, as Debian keeps it. dpkg knows files below /lib by that name or below /usr/lib.
    file(REAL_PATH "${library}" library)
    string(REGEX REPLACE "^/usr/lib/" "/lib/" short "${library}")
    execute_process(COMMAND dpkg-query -S "${library}" "${short}"
      OUTPUT_VARIABLE package ERROR_QUIET)
    string(REGEX MATCH "^[a-z0-9][a-z0-9+.-]*" package "${package}")
    set(copyright /usr/share/doc/${package}/copyright)
    if(NOT package OR NOT EXISTS ${copyright})
      message(WARNING "${library}: add its license to share/doc/weft/libraries before you pass the "
                      "package on; dpkg names no package with a copyright file")
    else()
      file(COPY_FILE ${copyright} ${weft_licenses}/${package} ONLY_IF_DIFFERENT)
    endif()
  endforeach()
]] COMPONENT libraries EXCLUDE_FROM_ALL)

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # `./weft package` has built what is packed
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_CONTACT "weft <weft@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_VERBATIM_VARIABLES TRUE)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_COMPONENTS_ALL Unspecified libraries)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
# The tarball has a folder, and can be anywhere.
file(WRITE ${PROJECT_BINARY_DIR}/packages.cmake [[
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
else()
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
]])
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/packages.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libstdc++6 (>= 12), libgcc-s1")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "iproute2")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libibverbs1, ibverbs-providers, libucx0, libpmix2")
include(CPack)
