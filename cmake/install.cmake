# What `cmake --install` installs: the program, its manual page, and completion for three shells, each in the folder where
# systems look for it.
include(GNUInstallDirs)
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
