# How a fresh build compiles less: files of one folder together, and the headers of other libraries once.
#
#   kvopt_unity_by_folder(<target>)
#
# With -DCMAKE_UNITY_BUILD=ON, which the presets for whole builds set, the files of one folder are compiled together, at
# most kvopt_unity_files at a time; files of different folders, whose namespaces differ, never are. A name that a file
# defines for itself must therefore be unique in its folder. Without it, and with a compiler cache, every file is
# compiled alone, which also shows where one lacks an include.
set(kvopt_unity_files 12)

function(kvopt_unity_by_folder target)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  set(folders "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET path PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND folders ${folder})
    list(APPEND files_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    # As many batches as are needed, of equal size.
    list(LENGTH files_${folder} count)
    math(EXPR batches "(${count} + ${kvopt_unity_files} - 1) / ${kvopt_unity_files}")
    set(index 0)
    foreach(source IN LISTS files_${folder})
      math(EXPR batch "${index} * ${batches} / ${count}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${batch})
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
endfunction()
