# Headers that take longer to read than most files take to compile, read once for each target. Not together
# with a compiler cache, which is faster still, makes nothing of headers compiled before, and so also shows
# where a file lacks an include.
#   kvopt_precompile(<target> <header>…)
option(KVOPT_PRECOMPILE "Precompile headers of other libraries where there is no compiler cache" ON)

function(kvopt_precompile target)
  if(KVOPT_PRECOMPILE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # GCC 12 no longer knows that std::string is the library's, and reports sums of strings falsely.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow> $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
  endif()
endfunction()

# What most files above the kernels read.
set(kvopt_common_headers
  <algorithm> <functional> <map> <memory> <optional> <string> <vector>
  <fmt/format.h> <llvm/ADT/DenseMap.h> <llvm/ADT/DenseSet.h> <llvm/ADT/STLExtras.h>
  <llvm/Support/Error.h>)
set(kvopt_test_headers
  ${kvopt_common_headers} <filesystem> <fstream> <random> <gmock/gmock.h> <gtest/gtest.h>)
