# Headers that nearly every file reads, parsed once for each binary: kvopt_precompile(<target>
# [header…]). Off unless asked for: without them the compiler sees that a file includes what it uses.
option(KVOPT_PRECOMPILED_HEADERS "Parse common headers once for each library and test binary" OFF)
if(KVOPT_PRECOMPILED_HEADERS AND KVOPT_CCACHE)
  # What ccache needs to know such files again.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${KVOPT_CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

function(kvopt_precompile target)
  if(KVOPT_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <map> <memory> <optional> <string> <variant> <vector>
      <fmt/format.h>
      <llvm/ADT/DenseMap.h> <llvm/ADT/STLExtras.h> <llvm/ADT/StringMap.h> <llvm/ADT/StringSet.h>
      <llvm/Support/Error.h>
      ${PROJECT_SOURCE_DIR}/ir/diagnostic.h
      ${PROJECT_SOURCE_DIR}/ir/model.h
      ${ARGN})
  endif()
endfunction()
