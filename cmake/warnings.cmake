# One interface target carries the warning set; every layer links it privately.
add_library(kvopt_warnings INTERFACE)
target_compile_options(kvopt_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual
  -Wunused-result -Wno-missing-field-initializers
  $<$<BOOL:${KVOPT_WERROR}>:-Werror>)
# Where files are compiled together, the names of one are global to the next.
set(kvopt_is_together $<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>)
target_compile_options(kvopt_warnings INTERFACE
  $<$<NOT:${kvopt_is_together}>:-Wshadow>
  $<$<AND:${kvopt_is_together},$<CXX_COMPILER_ID:GNU>>:-Wshadow=local>
  $<$<AND:${kvopt_is_together},$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
# GCC 12 falsely reports copies inside std::string as overlapping or too long once it optimizes.
foreach(false_positive restrict array-bounds stringop-overflow)
  target_compile_options(kvopt_warnings INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-${false_positive}>)
endforeach()
if(KVOPT_SANITIZE)
  # GCC reports std::optional and sums of strings falsely once sanitizers have changed the code.
  foreach(false_positive maybe-uninitialized)
    target_compile_options(kvopt_warnings INTERFACE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-${false_positive}>)
  endforeach()
endif()
