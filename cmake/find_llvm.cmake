# Finds the first of the versions of LLVM that kvopt compiles with. -DLLVM_DIR=<folder of LLVMConfig.cmake> chooses one,
# and -DKVOPT_LLVM_VERSIONS=19.1 another order. LLVM's package accepts only its own major and minor version.
set(KVOPT_LLVM_VERSIONS 14.0 15.0 16.0 17.0 18.1 19.1 CACHE STRING
    "Versions of LLVM in the order in which they are searched for")
if(LLVM_DIR)
  find_package(LLVM REQUIRED CONFIG)
  if(LLVM_VERSION_MAJOR LESS 14 OR LLVM_VERSION_MAJOR GREATER 19)
    message(WARNING "kvopt is built with LLVM 14 to 19, and ${LLVM_DIR} has ${LLVM_PACKAGE_VERSION}")
  endif()
else()
  foreach(version IN LISTS KVOPT_LLVM_VERSIONS)
    if(NOT LLVM_FOUND)
      find_package(LLVM ${version} QUIET CONFIG)
    endif()
  endforeach()
  if(NOT LLVM_FOUND)
    message(FATAL_ERROR "LLVM was not found: install llvm-14-dev, or set LLVM_DIR to the folder of LLVMConfig.cmake "
                        "of another version of ${KVOPT_LLVM_VERSIONS}")
  endif()
endif()
