# Compiles the files of a target together, some at a time (CMake's unity builds): headers of other libraries
# are read, and what they instantiate is made, once for all of them; a whole build takes a third of the time.
# Not with a compiler cache, which is faster still and so also shows where a file lacks an include.
#   kvopt_compile_together(<target>)
option(KVOPT_COMPILE_TOGETHER "Compile files together where there is no compiler cache" ON)
set(kvopt_most_together 12)

# The names that <file> defines for itself: those of what starts at a line's start. It lists too many (what
# other files may call is in one file only), which does no harm.
function(kvopt_local_names file names)
  file(READ ${file} text)
  string(PREPEND text "\n")
  string(REGEX REPLACE "\n(namespace|using namespace|//|#)[^\n]*" "\n" text "${text}")
  # Characters that would join or split the elements of a list.
  string(REGEX REPLACE "[][;]" " !" text "${text}")
  string(REGEX REPLACE "(\n(struct|class|enum class|enum) [A-Za-z0-9_]+)[^\n]*" "\\1{" text "${text}")
  set(found "")
  foreach(definition
      "\n[A-Za-z][A-Za-z0-9_:<>,.&* ]*[ &*>][A-Za-z0-9_]+ ?[!({=]"
      "\n[a-z][A-Za-z0-9_]*[(]"
      "\nMATCHER[A-Z0-9_]*[(][A-Za-z0-9_]+")
    string(REGEX MATCHALL "${definition}" matches "${text}")
    foreach(match IN LISTS matches)
      string(REGEX REPLACE "^.*[^A-Za-z0-9_]([A-Za-z0-9_]+) ?[!({=]?$" "\\1" name "${match}")
      list(APPEND found ${name})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${names} "${found}" PARENT_SCOPE)
endfunction()

# Files that share a name of their own go to different groups.
function(kvopt_compile_together target)
  if(NOT KVOPT_COMPILE_TOGETHER OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(groups 0)
  foreach(source IN LISTS sources)
    kvopt_local_names(${source} names)
    set(group 0)
    while(group LESS groups)
      set(all ${names} ${names_${group}})
      list(LENGTH all count)
      list(REMOVE_DUPLICATES all)
      list(LENGTH all distinct)
      if(count EQUAL distinct AND size_${group} LESS kvopt_most_together)
        break()
      endif()
      math(EXPR group "${group} + 1")
    endwhile()
    if(group EQUAL groups)
      math(EXPR groups "${groups} + 1")
      set(size_${group} 0)
    endif()
    list(APPEND names_${group} ${names})
    math(EXPR size_${group} "${size_${group}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
