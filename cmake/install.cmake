# cmake --install, find_package(kvopt), pkg-config and cpack.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The program, its manual page, and completion for three shells, each in the folder where systems look for it.
set(documents ${CMAKE_CURRENT_BINARY_DIR}/documents)
file(MAKE_DIRECTORY ${documents})
add_custom_command(
  OUTPUT ${documents}/kvopt.1 ${documents}/kvopt.bash ${documents}/_kvopt ${documents}/kvopt.fish
  COMMAND ${CMAKE_COMMAND} -DKVOPT=$<TARGET_FILE:kvopt> -DFOLDER=${documents}
          -P ${PROJECT_SOURCE_DIR}/cmake/print_documents.cmake
  DEPENDS kvopt ${PROJECT_SOURCE_DIR}/cmake/print_documents.cmake
  VERBATIM)
add_custom_target(kvopt_documents ALL DEPENDS ${documents}/kvopt.1)
install(TARGETS kvopt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${documents}/kvopt.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${documents}/kvopt.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME kvopt)
install(FILES ${documents}/_kvopt DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${documents}/kvopt.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# The library.
install(TARGETS kvopt_shared EXPORT kvoptTargets)
install(FILES ${PROJECT_BINARY_DIR}/lib/libkvopt.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Programs give its path to ONNX Runtime.
if(TARGET kvopt_onnxruntime)
  install(TARGETS kvopt_onnxruntime LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/kvopt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Headers of the layers, for programs that add rules, kernels or targets.
foreach(layer support ir check passes runtime driver)
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
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
