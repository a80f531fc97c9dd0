# libweft.so (the three libraries in one), its headers, and how other builds find it.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Libraries outside the system's folders (PMIx on Debian) are found by what we install.
set_target_properties(weft PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)

add_library(weft_shared SHARED ${weft_empty})
add_library(weft::weft ALIAS weft_shared)
set_target_properties(weft_shared PROPERTIES
  OUTPUT_NAME weft
  EXPORT_NAME weft
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  INSTALL_RPATH_USE_LINK_PATH ON
  # weft_coll brings the others; all of them come whole.
  LINK_LIBRARY_OVERRIDE WHOLE_ARCHIVE,weft_topo,weft_transport,weft_coll)
target_link_libraries(weft_shared PRIVATE weft_coll)
# What is not in the list is hidden.
set(weft_exports ${PROJECT_SOURCE_DIR}/coll/bindings/c/libweft.map)
target_link_options(weft_shared PRIVATE LINKER:--version-script=${weft_exports})
set_target_properties(weft_shared PROPERTIES LINK_DEPENDS ${weft_exports})
# Both "coll/api/communicator.h" and <weft/coll/api/communicator.h> work.
target_include_directories(weft_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/weft>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(weft_shared INTERFACE cxx_std_20)

install(TARGETS weft)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(FILES CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(PROGRAMS tests/lab/netlab tests/lab/netlab_faults tests/lab/netlab_partial tests/lab/come_and_go
        tests/lab/flow_member
        tests/lab/softroce tests/lab/softroce_guest tests/lab/softroce_faults tests/lab/softroce_partial
        DESTINATION ${CMAKE_INSTALL_DATADIR}/weft OPTIONAL)
install(PROGRAMS perf/validate/slurm/prolog perf/validate/slurm/epilog perf/validate/slurm/node_check
        DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/slurm OPTIONAL)
install(DIRECTORY perf/validate/kubernetes/ DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/kubernetes
        OPTIONAL)
install(TARGETS weft_shared EXPORT weft LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# The headers of coll/api and those that these include, nothing else: tests/install compiles each alone.
install(DIRECTORY coll/api/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft/coll/api
        FILES_MATCHING PATTERN "*.h")
install(FILES coll/bindings/c/weft.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
foreach(header IN ITEMS coll/types.h topo/base/status.h topo/counters.h topo/topology.h
                        transport/memory/memory.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft/${folder})
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weft NAMESPACE weft:: FILE weft-config.cmake DESTINATION ${package_dir})
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weft-config-version.cmake DESTINATION ${package_dir})

# The prefix is relative to the file: an installed tree can be moved.
file(RELATIVE_PATH weft_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
