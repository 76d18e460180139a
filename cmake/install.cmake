# cmake --install, find_package(kvopt), pkg-config and cpack.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS kvopt_shared EXPORT kvoptTargets)
install(FILES ${PROJECT_BINARY_DIR}/lib/libkvopt.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/kvopt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Headers of the layers, for programs that add rules, kernels or targets.
foreach(layer support ir passes runtime driver)
  install(DIRECTORY ${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvopt/extend
          FILES_MATCHING PATTERN "*.h")
endforeach()

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kvopt)
install(EXPORT kvoptTargets NAMESPACE kvopt:: DESTINATION ${config_folder})
configure_package_config_file(cmake/kvoptConfig.cmake.in ${PROJECT_BINARY_DIR}/kvoptConfig.cmake
  INSTALL_DESTINATION ${config_folder} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvoptConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvoptConfig.cmake ${PROJECT_BINARY_DIR}/kvoptConfigVersion.cmake
        DESTINATION ${config_folder})
file(RELATIVE_PATH kvopt_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/kvopt.pc.in ${PROJECT_BINARY_DIR}/kvopt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvopt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CPACK_PACKAGE_NAME kvopt)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Rewrites ONNX decoders so that their caches are not copied")
set(CPACK_PACKAGE_CONTACT "kvopt developers")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
