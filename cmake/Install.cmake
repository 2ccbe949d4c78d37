# What `cmake --install` lays down: headers, library, the CMake package, the pkg-config file and the licence (src/cli
# adds the command). All of it may be moved afterwards: no file names the prefix.
include(CMakePackageConfigHelpers)

set(TRUENORM_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/truenorm)

install(TARGETS truenorm EXPORT truenormTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/truenorm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT truenormTargets NAMESPACE truenorm:: DESTINATION ${TRUENORM_CMAKE_DIR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/truenormConfig.cmake.in
  ${PROJECT_BINARY_DIR}/truenormConfig.cmake INSTALL_DESTINATION ${TRUENORM_CMAKE_DIR}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# 0.x: a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/truenormConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/truenormConfig.cmake ${PROJECT_BINARY_DIR}/truenormConfigVersion.cmake
  DESTINATION ${TRUENORM_CMAKE_DIR})

# ${pcfiledir} is where pkg-config finds the file, so the prefix is reached from there.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR and CMAKE_INSTALL_INCLUDEDIR must be relative to the install prefix")
endif()
file(RELATIVE_PATH TRUENORM_PREFIX_FROM_PC /prefix/${pkgconfig_dir} /prefix)
string(REGEX REPLACE "/$" "" TRUENORM_PREFIX_FROM_PC "${TRUENORM_PREFIX_FROM_PC}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/truenorm.pc.in ${PROJECT_BINARY_DIR}/truenorm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/truenorm.pc DESTINATION ${pkgconfig_dir})
