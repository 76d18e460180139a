# How much compilers optimize.
#
#   kvopt_works_on_graphs(<target> [<level>])
#
# Code that works on graphs instead of numbers takes a third longer to compile with more than -O1, the level unless another
# is given, and gains little. Under sanitizers it takes half as long to compile without optimization.
function(kvopt_works_on_graphs target)
  set(level -O1)
  if(ARGC GREATER 1)
    set(level ${ARGV1})
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  if(KVOPT_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()
