# How much compilers optimize.
#
#   kvopt_works_on_graphs(<target>)
#
# Code that works on graphs instead of numbers takes a third longer to compile with more than -O1, and gains nothing that
# its benchmarks show (bench/notes/build-time.md). Under sanitizers it takes half as long to compile without optimization.
function(kvopt_works_on_graphs target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(KVOPT_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()
