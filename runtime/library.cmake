# liblathe.so and liblathe.a: all floors behind the C ABI; their headers, CMake package and pkg-config file. Relocatable.
include(CMakePackageConfigHelpers)

add_library(lathe_shared SHARED $<TARGET_OBJECTS:lathe_capi>)
target_link_libraries(lathe_shared PRIVATE lathe_runtime)
# Bound when it is loaded: no call looks symbols up, and what it calls through cannot be written.
target_link_options(lathe_shared PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,relro -Wl,-z,now
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/exports.map)
set_target_properties(lathe_shared PROPERTIES OUTPUT_NAME lathe EXPORT_NAME lathe VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/exports.map)

add_library(lathe_headers INTERFACE)
set_target_properties(lathe_headers PROPERTIES EXPORT_NAME headers)
target_include_directories(lathe_headers INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(lathe_shared INTERFACE lathe_headers)

# One archive of the floors' archives: `ar -M` reads a script.
set(script "CREATE liblathe.a\n")
foreach(floor ir ops search jit runtime)
  string(APPEND script "ADDLIB $<TARGET_FILE:lathe_${floor}>\n")
endforeach()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/liblathe.mri CONTENT "${script}SAVE\nEND\n")
add_custom_command(OUTPUT liblathe.a
  COMMAND ${CMAKE_COMMAND} -E rm -f liblathe.a
  COMMAND sh -c "${CMAKE_AR} -M < liblathe.mri"
  DEPENDS lathe_ir lathe_ops lathe_search lathe_jit lathe_runtime ${CMAKE_CURRENT_BINARY_DIR}/liblathe.mri
  WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} VERBATIM)
add_custom_target(lathe_static ALL DEPENDS liblathe.a)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Lathe)
set(LATHE_STATIC_LIBS "fmt;sodium;xxhash;tbb;dl;pthread;stdc++;m")
string(REPLACE ";" " -l" static_flags "-l${LATHE_STATIC_LIBS}")
configure_package_config_file(LatheConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/LatheConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/LatheConfigVersion.cmake COMPATIBILITY SameMajorVersion)
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(lathe.pc.in lathe.pc @ONLY)

install(TARGETS lathe_shared lathe_headers EXPORT LatheTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT LatheTargets NAMESPACE Lathe:: DESTINATION ${package_dir})
install(FILES ${CMAKE_SOURCE_DIR}/include/lathe.h ${CMAKE_SOURCE_DIR}/include/lathe_tbb.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/liblathe.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/LatheConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/LatheConfigVersion.cmake
  DESTINATION ${package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lathe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
