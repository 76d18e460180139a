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

if(KVOPT_RUNTIME)
  include(cmake/install_library.cmake)
endif()

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
