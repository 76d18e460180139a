# The library for other programs: cmake --install, find_package(kvopt) and pkg-config.
install(TARGETS kvopt_shared EXPORT kvoptTargets)
install(FILES ${PROJECT_BINARY_DIR}/lib/libkvopt.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Programs give its path to ONNX Runtime.
if(TARGET kvopt_onnxruntime)
  install(TARGETS kvopt_onnxruntime LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/kvopt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Headers of the layers, for programs that add rules, kernels or targets.
foreach(layer support ir meaning check passes runtime driver)
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
