# How much compilers optimize, and what fuzzers see.
#
#   kvopt_works_on_graphs(<target> [<level>])
#
# Code that works on graphs instead of numbers takes a third longer to compile with more than -O1, the level unless another
# is given, and gains little. Under sanitizers it takes half as long to compile without optimization, and its pointers, which
# are those of containers, are not checked for alignment.
#
#   kvopt_guides_fuzzers(<target>)
#
# libFuzzer looks for inputs that reach new branches of this code. Counting them takes a third of the time to compile, so
# only what reads files and graphs does.
function(kvopt_works_on_graphs target)
  set(level -O1)
  if(ARGC GREATER 1)
    set(level ${ARGV1})
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  if(KVOPT_SANITIZE)
    target_compile_options(${target} PRIVATE -O0 -fno-sanitize=alignment)
  endif()
endfunction()

function(kvopt_guides_fuzzers target)
  if(KVOPT_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
