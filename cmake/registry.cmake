# kvopt_registry(<target> <folder> <namespace> <ns::RegistryType> <header> [<suffix> [<function>]])
#
# A source file at any depth of <folder> that has no header of its own defines
# `void kvopt::<namespace>::register_<stem>(ns::RegistryType&)`; with a <suffix>, only those named
# `<stem><suffix>.cc` do. This function adds every source file of the folder to <target> and generates
# `void kvopt::ns::registerAll(RegistryType&)` (or <function>), which calls the functions in the order of their names. There are
# no static initializers and no list to edit: a file that omits its function is a link error that names it.
function(kvopt_registry target folder namespace registry header)
  set(suffix "${ARGV5}")
  set(function registerAll)
  if(ARGC GREATER 6)
    set(function ${ARGV6})
  endif()
  string(REGEX REPLACE "::.*" "" owner ${registry})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  set(stems "")
  foreach(source IN LISTS sources)
    string(REGEX REPLACE "\\.cc$" ".h" own_header ${source})
    if(source MATCHES "${suffix}\\.cc$" AND NOT EXISTS ${own_header})
      get_filename_component(stem ${source} NAME_WE)
      string(REGEX REPLACE "(.)${suffix}$" "\\1" stem ${stem})
      list(APPEND stems ${stem})
    endif()
  endforeach()
  list(SORT stems)
  set(declarations "")
  set(calls "")
  foreach(stem IN LISTS stems)
    string(APPEND declarations "void register_${stem}(${registry}& registry);\n")
    string(APPEND calls "  ${namespace}::register_${stem}(registry);\n")
  endforeach()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
             OUTPUT_VARIABLE layer)
  set(generated ${PROJECT_BINARY_DIR}/generated/${layer}/${folder}/registry.cc)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT
"// Generated from the files of ${layer}/${folder}; do not edit.
#include \"${header}\"

namespace kvopt::${namespace} {
${declarations}} // namespace kvopt::${namespace}

namespace kvopt::${owner} {
void ${function}(${registry}& registry) {
  (void)registry;
${calls}}
} // namespace kvopt::${owner}
")
  target_sources(${target} PRIVATE ${sources} ${generated})
endfunction()
